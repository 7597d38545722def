/* SPDX-License-Identifier: MIT
 * macros.h: ${NAME} in the values of a configuration. */
#pragma once

#include "yaml/yaml.h"

#define BT_MACRO_NAME_MAX  63u         /* bytes; llama-swap's */
#define BT_MACRO_DEPTH_MAX 16u         /* macros inside macros */
#define BT_MACRO_STEPS_MAX 1000u       /* replaced in one value, those of macros with them */
#define BT_MACRO_VALUE_MAX (64u << 10) /* bytes of a value when all is replaced */

typedef struct bt_macro {
    const char *name;
    const bt_yaml_node *value; /* a scalar */
} bt_macro;

typedef struct bt_macros {
    const bt_macro *own; /* a model's, before the others */
    uint32_t n_own;
    const bt_macro *items;
    uint32_t n;
    const char *model_id; /* NULL: not in a model */
    const char *(*env_get)(const char *);
} bt_macros;

/* ${PORT} and ${PID}, which are known when a process is there: left as they are, or an error. */
#define BT_MACRO_KEEP_PORT 1u
#define BT_MACRO_KEEP_PID  2u

/* The text of a scalar with all replaced, in the arena; the text itself where nothing is. ret_type: of the value: of
 * the macro's where it is nothing but one macro, else TEXT where something was replaced. BT_E_FORMAT, BT_E_LIMIT (code
 * "config", a sentence without a place), BT_E_NOMEM. */
BT_MUST_CHECK bt_status bt_macros_expand(const bt_macros *macros, const bt_yaml_node *scalar, uint32_t keep,
                                         bt_arena *arena, const char **ret, bt_yaml_type *ret_type, bt_error *err);
/* [a-zA-Z0-9_-]+, at most BT_MACRO_NAME_MAX, and none of PORT, PID, MODEL_ID. */
bool bt_macros_name_ok(const char *name);
