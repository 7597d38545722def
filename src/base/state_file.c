/* SPDX-License-Identifier: MIT
 *
 * state_file.c: one file of the state folder, read or kept by one call. Who has several in one turn, or needs the lock,
 * opens the folder (state.c). */
#include "base/error.h"
#include "base/os.h"
#include "base/state.h"

bt_status bt_state_recall(const char *name, bt_text *text, bt_error *err) {
    int dir = -1;
    BT_TRY(bt_state_open(false, &dir, err));
    bt_status status = bt_state_read(dir, name, text, err);
    (void)bt_os_close(dir);
    return status;
}

bt_status bt_state_keep(const char *name, const char *data, size_t bytes, const char *prefix, uint32_t n_max,
                        bt_error *err) {
    int dir = -1;
    BT_TRY(bt_state_open(true, &dir, err));
    bt_status status = bt_state_write(dir, name, data, bytes, err);
    bt_state_trim(dir, prefix, n_max);
    (void)bt_os_close(dir);
    return status;
}
