# SPDX-License-Identifier: MIT
# Flags of our own targets; foreign headers are SYSTEM and see none of this (docs/design.md, CONTRIBUTING.md).
set(BT_COMPILE_FLAGS
    -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wcast-align -Wstrict-prototypes
    -Wmissing-prototypes -Wold-style-definition -Wundef -Wvla -Wformat=2 -Wwrite-strings -Wpointer-arith
    -Wdouble-promotion -Wimplicit-fallthrough -Wswitch-enum -Wnull-dereference -Wframe-larger-than=16384
    -fvisibility=hidden -fno-common)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND BT_COMPILE_FLAGS -Wduplicated-cond -Wduplicated-branches -Wlogical-op -Wjump-misses-init)
endif()
set(BT_LINK_FLAGS)
if(BT_WERROR OR DEFINED ENV{CI})
    list(APPEND BT_COMPILE_FLAGS -Werror)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release" OR CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    list(APPEND BT_COMPILE_FLAGS -fstack-protector-strong)
    if(NOT BT_SANITIZE AND NOT BT_COVERAGE)
        list(APPEND BT_COMPILE_FLAGS -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
    endif()
    list(APPEND BT_LINK_FLAGS -Wl,-z,relro,-z,now)
endif()
if(BT_SANITIZE)
    # Sanitizers put red zones around every variable: frames are no measure there.
    list(REMOVE_ITEM BT_COMPILE_FLAGS -Wframe-larger-than=16384)
    list(APPEND BT_COMPILE_FLAGS -fsanitize=${BT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    list(APPEND BT_LINK_FLAGS -fsanitize=${BT_SANITIZE})
endif()
if(BT_FUZZERS)
    list(APPEND BT_COMPILE_FLAGS -fsanitize=fuzzer-no-link) # libFuzzer sees which branches an input takes
endif()
if(BT_COVERAGE)
    # Counted by several threads at once, as some tests do, counters that are not atomic may even turn negative.
    list(APPEND BT_COMPILE_FLAGS --coverage -O0 -fprofile-update=atomic)
    list(APPEND BT_LINK_FLAGS --coverage)
endif()
add_link_options(${BT_LINK_FLAGS})
