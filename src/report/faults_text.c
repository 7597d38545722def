/* SPDX-License-Identifier: MIT
 * faults_text.c: major faults of a token, and when they mean that memory is short.
 *
 * A major fault is a page that had to come from a disk before the program could go on. Weights that stream are read
 * ahead and cause none, and nothing of the model is mapped: a run inside its budget has next to none. Many of them
 * say that the system takes pages of this process, or the code of its libraries, away while it needs them (research
 * notes, user-case 33: a user took that for streaming). The loop is looked at from its second token on: what is
 * brought in once has been. */
#include "report/report.h"

/* research notes, user-case 33: the bound of its check; plain mmap of a model over the memory had 830 to 2020 */
#define FAULTS_PER_TOKEN_MAX 50.0

bool bt_report_faults_per_token(const bt_measured *measured, double *ret_faults) {
    if (!measured->loop_major_faults.known || measured->loop_tokens == 0) return false;
    *ret_faults = (double)measured->loop_major_faults.value / (double)measured->loop_tokens;
    return true;
}

bool bt_report_faults_warning(const bt_plan *plan, const bt_measured *measured, bt_text *out) {
    double faults = 0;
    bool streams = plan->read_bytes_per_pass > 0;
    if (!streams || !bt_report_faults_per_token(measured, &faults) || faults <= FAULTS_PER_TOKEN_MAX) return false;
    bt_text_addf(out,
                 "%.0f major faults a token (%.0f are many): the machine or the cgroup is short of memory, and pages "
                 "of this process or its libraries are evicted and read again; a lower --ram-budget, or fewer other "
                 "programs, is faster",
                 faults, FAULTS_PER_TOKEN_MAX);
    return true;
}
