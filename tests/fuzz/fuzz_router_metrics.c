/* SPDX-License-Identifier: MIT
 * fuzz_router_metrics.c: libFuzzer over what two servers export, a NUL byte between them: the whole text holds to the
 * format (exposition_check.h), and what is left out is said. */
#include <stdint.h>

#include "exposition_check.h"
#include "router/metrics.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *between = n > 0 ? memchr(data, '\0', n) : NULL;
    size_t n_first = between ? (size_t)(between - data) : n;
    size_t n_second = between ? n - n_first - 1 : 0;
    char *first = malloc(n_first ? n_first : 1); /* each of its own size, so that a read past it is seen */
    char *second = malloc(n_second ? n_second : 1);
    if (!first || !second) abort();
    memcpy(first, data, n_first);
    if (between) memcpy(second, between + 1, n_second);
    bt_metrics_model models[2] = {{.id = "a", .child_text = first, .n_child_text = n_first},
                                  {.id = "b", .child_text = second, .n_child_text = n_second}};
    bt_text out;
    bt_text_init(&out, 4u << 20);
    bt_metrics_text(&(bt_metrics_view){.models = models, .n_models = 2}, &out);
    expo *e = expo_read(bt_text_str(&out), out.n_bytes, false);
    const double *left_out = expo_value(e, "burthen_metrics_left_out{model=\"b\"}");
    if (out.failed || e->wrong[0] || !left_out || *left_out > (double)n_second + 1) {
        (void)fprintf(stderr, "%s\n", e->wrong);
        abort();
    }
    expo_close(e);
    bt_text_done(&out);
    free(first);
    free(second);
    return 0;
}
