/* SPDX-License-Identifier: MIT
 * The examples of FIPS 180-2 appendix B (and the empty message of NIST's short-message vectors), whole and in pieces.
 */
#include "model/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *text, size_t piece, const char *expected) {
    bt_sha256 hash;
    char hex[65];
    size_t n = strlen(text);
    bt_sha256_init(&hash);
    for (size_t at = 0; at < n; at += piece)
        bt_sha256_add(&hash, text + at, n - at < piece ? n - at : piece);
    bt_sha256_hex(&hash, hex);
    assert_string_equal(hex, expected);
}

static void vectors(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 7, 55, 56, 63, 64, 65, 1000};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        check("", pieces[i], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        check("abc", pieces[i], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", pieces[i],
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        check("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrst"
              "nopqrstu",
              pieces[i], "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    }
}

static void a_million_a(void **state) {
    (void)state;
    char text[1000];
    char hex[65];
    bt_sha256 hash;
    memset(text, 'a', sizeof text);
    bt_sha256_init(&hash);
    for (unsigned i = 0; i < 1000; i++)
        bt_sha256_add(&hash, text, sizeof text);
    bt_sha256_hex(&hash, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(a_million_a)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
