/* SPDX-License-Identifier: MIT
 * library_path.h: LD_LIBRARY_PATH without the working directory that nobody meant. */
#pragma once

#include "burthen.h"

/* Takes empty entries out of the variable of this process, for what it starts: to the loader each is the working
 * directory. ":/opt/lib", as `LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/opt/lib` makes it where there was none, is "/opt/lib".
 * A named "." stays. BT_E_NOMEM: it is as it was. Before there are threads. */
BT_MUST_CHECK bt_status bt_library_path_clean(bt_error *err);
