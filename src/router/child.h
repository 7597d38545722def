/* SPDX-License-Identifier: MIT
 * child.h: a server that the router has started: its process group, what it says, how it ends. */
#pragma once

#include "router/log_ring.h"
#include "router/loop.h"

#include <sys/types.h>

/* In the environment of everything that a router starts: its value is the router's own mark, random for each run. Who
 * carries it is a child of that router (reaper.h). */
#define BT_CHILD_MARK        "BURTHEN_SERVE_MARK"
#define BT_CHILD_WORDS_BYTES 400u

typedef enum bt_child_failure {
    BT_CHILD_NO_FAILURE,    /* it was told to end, or ended with 0 */
    BT_CHILD_DEVICE_MEMORY, /* cudaMalloc, ErrorOutOfDeviceMemory... */
    BT_CHILD_HOST_MEMORY,   /* killed by the OOM killer of its cgroup or the system, bad_alloc, mmap refused */
    BT_CHILD_BAD_MODEL,     /* the file cannot be loaded */
    BT_CHILD_PORT,          /* the address is taken */
    BT_CHILD_REFUSED,       /* `burthen exec` refused it (exit 3): the words are its sentence */
    BT_CHILD_NOT_STARTED,   /* the program is not there, or cannot be started (exit 126, 127) */
    BT_CHILD_OTHER,
} bt_child_failure;
const char *bt_child_failure_name(bt_child_failure failure); /* "out_of_device_memory", "out_of_memory", "bad_model",
                                                                "port_in_use", "insufficient_memory", "not_started",
                                                                "crashed"; NULL of none */

typedef struct bt_child_end {
    int exit_code; /* -1: by a signal */
    int signal;    /* 0: by exit */
    bool asked;    /* the router had told it to end */
    bt_child_failure failure;
    char words[BT_CHILD_WORDS_BYTES]; /* the line that says why, or the last that was said; escaped */
    bt_known need_bytes, have_bytes;  /* where the words say so ("allocating 1234.00 MiB on device 0") */
    char device[32];                  /* and which device; empty: not said */
} bt_child_end;

/* Pure: what an end and the last lines mean. oom_killed: the kernel's own counter of the child's cgroup says so. */
void bt_child_classify(int exit_code, int signal, bool oom_killed, const char *last_lines, bt_child_end *ret);

typedef struct bt_child bt_child;
typedef struct bt_child_ask {
    bt_loop *loop;
    char *const *argv;      /* NULL at the end; argv[0] is looked for in PATH */
    const char *const *env; /* "NAME=VALUE" set beside what the router has; NULL at the end, or NULL */
    const char *mark;       /* value of BT_CHILD_MARK */
    bt_log_ring *log;       /* both outputs go there */
    char *const *stop_argv; /* run to end it (its ${PID} is replaced), before signals; NULL: SIGTERM */
    void (*on_end)(void *user, const bt_child_end *end); /* exactly once: the process and its group are gone */
    void *user;
} bt_child_ask;

/* Start it: a process group of its own, SIGKILL when the router dies (PR_SET_PDEATHSIG), nothing inherited but the
 * three standard descriptors, signals as a fresh program has them. BT_E_IO, BT_E_NOMEM, code "child": nothing was
 * started. A program that is not there ends with exit code 127 and NOT_STARTED. The ask's strings are copied or not
 * used after. */
BT_MUST_CHECK bt_status bt_child_start(const bt_child_ask *ask, bt_child **ret, bt_error *err);
pid_t bt_child_pid(const bt_child *child);
/* stop_argv or SIGTERM to the group; SIGKILL after grace_ms. Again with less grace: the earlier end counts; 0: now. */
void bt_child_stop(bt_child *child, uint64_t grace_ms);
/* In or after on_end, or to forget a child that lives (it is killed, nobody is told). NULL is fine. */
void bt_child_close(bt_child *child);

/* Memory of the process and all its descendants that are still in its process group, now. Unknown: nobody is. */
typedef struct bt_child_memory {
    bt_known rss_bytes;      /* sum of VmRSS */
    bt_known peak_rss_bytes; /* sum of VmHWM: at least the peak */
    bt_known anon_bytes;     /* sum of RssAnon */
    uint32_t n_processes;
} bt_child_memory;
/* Of all of them at once, at most BT_CHILDREN_MAX, for little more than one costs. */
#define BT_CHILDREN_MAX 256u
void bt_children_memory_read(const bt_child *const *children, bt_child_memory *const *ret, uint32_t n);
