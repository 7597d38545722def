/* SPDX-License-Identifier: MIT
 * backends.h: the backends that llama.cpp's build put into files of their own. */
#pragma once

#include "burthen.h"

/* Bring in what stands beside libggml, of kinds for several processors the best for this one. Any number of times; with
 * a llama.cpp whose backends are linked there is nothing to do. From the folder of libggml alone: neither the working
 * directory nor GGML_BACKEND_PATH is looked at. To be called while the process has one thread. BT_E_DEVICE, code
 * "cpu_backend", where no CPU backend is there afterwards. */
BT_MUST_CHECK bt_status bt_backends_load(bt_error *err);
/* The file that the CPU backend's code is in, for as long as the process lives; NULL: not known. */
const char *bt_backends_cpu_file(void);
