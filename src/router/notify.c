/* SPDX-License-Identifier: MIT
 *
 * notify.c: a service manager that waits for the router.
 *
 *   systemd, Type=notify: NOTIFY_SOCKET=/run/user/1000/systemd/notify -> one datagram of text a state (sd_notify(3))
 *
 * So that units that come after it find it listening, and a reader of `systemctl status` sees where. The protocol is a
 * datagram to a named socket: ten lines here, against a library that the router would otherwise not map. The socket is
 * opened for each message, of which a life has a handful. */
#include "router/notify.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void bt_notify_open(bt_notify *ret) {
    const char *name = getenv("NOTIFY_SOCKET");
    size_t n = name ? strlen(name) : 0;
    *ret = (bt_notify){.address = {.sun_family = AF_UNIX}};
    if (n > 1 && n < sizeof ret->address.sun_path && (name[0] == '/' || name[0] == '@')) {
        memcpy(ret->address.sun_path, name, n);
        if (name[0] == '@') ret->address.sun_path[0] = '\0';
        ret->n_address = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    }
    (void)unsetenv("NOTIFY_SOCKET");
}

void bt_notify_say(const bt_notify *notify, const char *lines) {
    if (notify->n_address == 0) return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    (void)sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (const struct sockaddr *)&notify->address, notify->n_address);
    (void)close(fd);
}
