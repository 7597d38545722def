/* SPDX-License-Identifier: MIT
 * plan.c: a program of somebody else's: it knows <burthen.h> and what pkg-config says. Prints what a model needs and whether
 * it would be held or streamed on a host that has so many bytes free. */
#include <burthen.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    bt_error err = {0};
    bt_facts *facts = NULL;
    if (argc != 3) return 2;
    if (bt_facts_open(argv[1], &facts, &err) != BT_OK) {
        (void)fprintf(stderr, "%s: %s\n", err.code, err.text);
        return 4;
    }
    bt_known available = {.known = true, .value = strtoull(argv[2], NULL, 10)};
    bt_host_plan plan = bt_plan_host(facts->weight_bytes, available, 0, 0);
    (void)printf("%s %s %" PRIu64 " %s\n", BT_VERSION, facts->arch, facts->weight_bytes,
                 plan.stream ? "streamed" : "resident");
    bt_facts_close(facts);
    return 0;
}
