/* SPDX-License-Identifier: MIT
 * pools.h: the memories that models share, as they are now: what may be given away of each, what is free, who holds
 * what. */
#pragma once

#include "router/aside.h"
#include "router/config.h"
#include "router/loop.h"

#define BT_POOLS_USERS_MAX 512u

/* Some process's bytes of one device; unknown: it has some, and its driver does not say how many. */
typedef struct bt_pools_user {
    uint32_t pool, pid;
    bt_known bytes;
    bt_known host_bytes; /* of the host's, mapped for the device: what was driven out of it is here */
} bt_pools_user;

typedef struct bt_pools_one {
    char name[32];
    bt_pool_state state; /* of the reading */
    char reason[160];
    bt_known total_bytes, free_bytes;
    bt_known limit_bytes;  /* what models may be given; unknown: nothing bounds it but what is free */
    bt_known target_bytes; /* of a device: no more of it is used by what is started now */
    bool users_complete;   /* the list of users holds everybody */
    /* What there could be at most, and what of it could be had now, without any reserve: of the host the lowest of its
     * memory and its groups' limits; of a device total and free. */
    bt_known whole_bytes, available_bytes;
} bt_pools_one;

/* The host first. One sample is one moment: all of it is replaced at once. */
typedef struct bt_pools {
    bt_pools_one items[BT_POOL_MAX];
    uint32_t n;
    bt_pools_user users[BT_POOLS_USERS_MAX];
    uint32_t n_users;
    uint64_t own_bytes;      /* of the host's limit: the router itself, what it holds of requests, its helpers */
    uint64_t own_anon_bytes; /* of the router, now */
    bt_known stall;          /* of the host: bt_psi's some_avg10 */
    uint64_t began_ms;       /* when this sample was asked for: nothing in it is older */
    bool ready;              /* there was a sample */
} bt_pools;

/* What a router with this configuration takes of the host itself. */
uint64_t bt_pools_own_bytes(const bt_config *config);

/* BT_E_ARG, code "device_unknown": a device that is named without a size is not there, and those that are; asked once,
 * for BT_POOLS_NAMED_MS at most. What cannot be asked is a warning. Before the router begins: it has a loop of its own.
 */
#define BT_POOLS_NAMED_MS 10000u
BT_MUST_CHECK bt_status bt_pools_check_named(const bt_config *config, const char *root, bt_error *err);

typedef struct bt_sampler bt_sampler;
/* on_sample: after each. Starts with one at once. root: what stands before /proc and /sys. */
BT_MUST_CHECK bt_status bt_sampler_open(bt_loop *loop, const char *root, const bt_config *config,
                                        void (*on_sample)(void *user), void *user, bt_sampler **ret, bt_error *err);
void bt_sampler_close(bt_sampler *sampler);
void bt_sampler_reconfigure(bt_sampler *sampler, const bt_config *config);
/* busy: every second, since memory is on the move; else every 5 s. */
void bt_sampler_pace(bt_sampler *sampler, bool busy);
/* Soon, whatever the pace. */
void bt_sampler_ask(bt_sampler *sampler);
/* What our servers hold of the host that no one can take back (anonymous memory): without a budget the limit of the
 * host is that, and what is free. */
void bt_sampler_ours(bt_sampler *sampler, uint64_t anon_bytes);
const bt_pools *bt_sampler_pools(const bt_sampler *sampler);
bt_known bt_pools_used(const bt_pools_one *pool); /* of whole_bytes */
/* pools_host.c: the first pool, read now. */
void bt_pools_read_host(bt_pools *pools, const char *root, const bt_config *config);
/* Index of a pool by name; UINT32_MAX: none. */
uint32_t bt_pools_find(const bt_pools *pools, const char *name);
