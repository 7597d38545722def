/* SPDX-License-Identifier: MIT
 *
 * pools_named.c: whether the devices that were named are there, asked once, before anything begins.
 *
 * A name with a size is the user's word, and holds whatever the drivers show (add_named of pools.c). One without a size
 * is nothing but a name: where no device has it, nothing would ever be bounded by it, and nobody would be told. Asked
 * aside as every sample is, since a driver may hang; where it cannot be asked nothing is refused, for it is not known
 * then. Bound: BT_POOLS_NAMED_MS. */
#include "router/pools.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "plan/offload.h"

#include <errno.h>

typedef struct asking {
    const bt_config *config;
    const char *root;
    bt_loop *loop;
    bt_status status;
    bt_error *err;
} asking;

/* In the copy. The answer is the sentence for the first that is not there; nothing: all are. */
static bt_status look(void *arg, bt_text *answer, bt_error *err) {
    const asking *a = arg;
    bt_machine *machine = bt_heap_alloc(sizeof *machine); /* too large for the stack */
    if (!machine) return bt_fail_sys(err, ENOMEM, "probe", "cannot read the devices");
    BT_TRY(bt_machine_probe(a->root, machine, err));
    BT_TRY(bt_machine_devices_probe(a->root, machine, err));
    for (uint32_t i = 0; i < a->config->n_devices; i++) {
        const bt_config_device *device = &a->config->devices[i];
        bt_error why = {0};
        if (device->budget_bytes.known || bt_offers_know(machine, device->name, &why) == BT_OK) continue;
        bt_text_add(answer, why.text);
        break;
    }
    return BT_OK;
}

static void on_looked(void *user, const bt_text *answer, const bt_error *err) {
    asking *a = user;
    if (err)
        bt_log(BT_LOG_WARN, "whether the named devices are there is not known: %s", err->text);
    else if (answer->n_bytes > 0)
        a->status = bt_fail(a->err, BT_E_ARG, "device_unknown", BT_MEASURE_NONE, 0, 0, "%.390s", bt_text_str(answer));
    bt_loop_stop(a->loop);
}

bt_status bt_pools_check_named(const bt_config *config, const char *root, bt_error *err) {
    bool asks = false;
    for (uint32_t i = 0; i < config->n_devices; i++)
        asks = asks || !config->devices[i].budget_bytes.known;
    if (!asks) return BT_OK;
    asking a = {.config = config, .root = root, .status = BT_OK, .err = err};
    bt_aside *aside = NULL;
    BT_TRY(bt_loop_open(&a.loop, err));
    bt_status status = bt_aside_start(a.loop, look, &a, BT_POOLS_NAMED_MS, on_looked, &a, &aside, err);
    if (status == BT_OK) status = bt_loop_run(a.loop, err);
    if (status != BT_OK) bt_aside_cancel(aside);
    bt_loop_close(a.loop);
    return status == BT_OK ? a.status : status;
}
