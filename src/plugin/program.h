/* SPDX-License-Identifier: MIT
 * program.h: the llama.cpp program that has loaded this library. */
#pragma once

#include "burthen.h"

/* Its ggml is the one that this library was built with: of the same version, with the same layout of what both write
 * to, and outside the program, so that there is one of it. BT_E_UNSUPPORTED, code "ggml_version" (naming both) or
 * "ggml_static". */
BT_MUST_CHECK bt_status bt_program_check(bt_error *err);
