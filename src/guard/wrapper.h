/* SPDX-License-Identifier: MIT
 * wrapper.h: where in a command the llama.cpp program starts, and what stands before it: nice, env, docker run... */
#pragma once

#include "guard/flags.h"

#define BT_ENV_CHANGE_MAX                                                                                              \
    128 /* variables that a command sets before its program; more, and the command is not read                         \
         */

typedef enum bt_env_action {
    BT_ENV_SET,
    BT_ENV_UNSET,
    BT_ENV_INHERIT, /* handed through where the others are dropped: docker run -e NAME */
    BT_ENV_CLEAR,   /* none is left: env -i, the inside of a container */
} bt_env_action;

typedef struct bt_env_change {
    bt_env_action action;
    const char *name; /* n_name bytes of argv; NULL of CLEAR */
    uint32_t n_name;
    const char *value; /* of SET */
} bt_env_change;

/* Points into argv. */
typedef struct bt_command {
    bt_program program;  /* NONE: not found, and reason says why */
    uint32_t program_at; /* its element, or that of the image whose entry point it is */
    uint32_t first;      /* the first of its own arguments; they go on to the end */
    uint32_t n_wrappers; /* commands that stand before it */
    bool container;      /* its files and its configuration are not this system's */
    bool env_unknown;    /* more variables may be set than can be seen here: by an image, a file, a service manager */
    const char *forks;   /* the wrapper under which the program is a process of its own; NULL: it takes their place */
    char reason[160];    /* may hold bytes as the user wrote them: escaped before it is shown */
    bt_env_change changes[BT_ENV_CHANGE_MAX]; /* in the order in which they take effect */
    uint32_t n_changes;
} bt_command;

/* argv ends with NULL. What cannot be read for sure (a shell, an option of a wrapper that is not known) is not. */
void bt_command_find(char *const *argv, bt_command *ret);

/* How to ask for a variable of the environment in which the whole command is started; NULL: not set. */
typedef const char *(*bt_env_get)(void *context, const char *name);
/* The variable as the program will see it; NULL: not set, as far as can be seen. get NULL: an empty environment. */
const char *bt_command_env(const bt_command *command, const char *name, bt_env_get get, void *context);
