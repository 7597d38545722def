/* SPDX-License-Identifier: MIT
 * scrape.h: the metrics that the servers export, put together. Private to metrics.c. */
#pragma once

#include "base/text.h"

#define BT_SCRAPE_TEXT_MAX     1048576u /* of one server; what follows is left out */
#define BT_SCRAPE_SAMPLES_MAX  10000u   /* of one server */
#define BT_SCRAPE_TOTAL_MAX    65536u   /* samples of all servers */
#define BT_SCRAPE_FAMILIES_MAX 1024u    /* of all servers */
#define BT_SCRAPE_LABELS_MAX   32u      /* of a sample */

typedef struct bt_scrape bt_scrape;

bt_scrape *bt_scrape_open(uint32_t n_servers); /* NULL: no memory */
void bt_scrape_close(bt_scrape *scrape);       /* NULL is fine */
/* What server `number`, known as model, has said. Both must live as long as the scrape. Once each. */
void bt_scrape_add(bt_scrape *scrape, uint32_t number, const char *model, const char *text, size_t n_bytes);
/* After the last one: families whose type differs between servers are left out. */
void bt_scrape_settle(bt_scrape *scrape);
/* Lines of that server that are not in the text: not of the format, over a bound, or of a family that is left out. */
uint64_t bt_scrape_left_out(const bt_scrape *scrape, uint32_t number);
/* All families, each once, in the order in which they were first seen; those that do not fit whole into what is left of
 * out are left out. A comment says which and why. */
void bt_scrape_text(const bt_scrape *scrape, bt_text *out);
