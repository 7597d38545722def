/* SPDX-License-Identifier: MIT
 * test_router_notify.c: what a service manager hears: a socket with a name in a folder, or without; nobody; a manager
 * that does not read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "open_files.h"
#include "router/notify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static uint32_t n_files;

static int setup(void **state) {
    (void)state;
    n_files = n_open_files();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    (void)unlink(path);
    return n_open_files() == n_files ? 0 : -1;
}

/* A manager that listens under a name; its socket. */
static int manager(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    memcpy(address.sun_path, name, n);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    else
        (void)unlink(name); /* of a test of this number that was killed */
    assert_int_equal(bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    return fd;
}

static void hears(int fd, const char *lines) {
    char heard[256] = "";
    assert_int_equal(recv(fd, heard, sizeof heard - 1, 0), (ssize_t)strlen(lines));
    assert_string_equal(heard, lines);
}

static void under_a_path(void **state) {
    (void)state;
    (void)snprintf(path, sizeof path, "/tmp/burthen-notify-%ld", (long)getpid());
    bt_notify notify;
    int fd = manager(path);
    bt_notify_open(&notify);
    assert_null(getenv("NOTIFY_SOCKET")); /* no child speaks in our name */
    bt_notify_say(&notify, "READY=1\nSTATUS=listening");
    bt_notify_say(&notify, "STOPPING=1");
    hears(fd, "READY=1\nSTATUS=listening"); /* datagrams: a message each */
    hears(fd, "STOPPING=1");
    (void)close(fd);
    bt_notify_say(&notify, "READY=1"); /* a manager that is gone */
}

static void under_an_abstract_name(void **state) {
    (void)state;
    char name[64];
    (void)snprintf(name, sizeof name, "@burthen-notify-%ld", (long)getpid());
    bt_notify notify;
    int fd = manager(name);
    bt_notify_open(&notify);
    bt_notify_say(&notify, "READY=1");
    hears(fd, "READY=1");
    (void)close(fd);
}

/* More than a socket's queue holds: a router that waited here would stand still for good. */
static void manager_that_does_not_read(void **state) {
    (void)state;
    (void)snprintf(path, sizeof path, "/tmp/burthen-notify-%ld", (long)getpid());
    bt_notify notify;
    int fd = manager(path);
    bt_notify_open(&notify);
    for (int i = 0; i < 4096; i++)
        bt_notify_say(&notify, "READY=1");
    hears(fd, "READY=1");
    (void)close(fd);
}

static void nobody(void **state) {
    (void)state;
    char too_long[sizeof((struct sockaddr_un *)NULL)->sun_path + 1];
    memset(too_long, 'x', sizeof too_long - 1);
    too_long[0] = '/';
    too_long[sizeof too_long - 1] = '\0';
    const char *const names[] = {"", "/", "@", "relative/path", "vsock:2:1", too_long, NULL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bt_notify notify;
        assert_int_equal(names[i] ? setenv("NOTIFY_SOCKET", names[i], 1) : unsetenv("NOTIFY_SOCKET"), 0);
        bt_notify_open(&notify);
        assert_int_equal(notify.n_address, 0);
        assert_null(getenv("NOTIFY_SOCKET"));
        bt_notify_say(&notify, "READY=1");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(under_a_path, setup, teardown),
        cmocka_unit_test_setup_teardown(under_an_abstract_name, setup, teardown),
        cmocka_unit_test_setup_teardown(manager_that_does_not_read, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
