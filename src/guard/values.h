/* SPDX-License-Identifier: MIT
 * values.h: the value of an option as llama.cpp reads it. false: llama.cpp refuses it and ends. */
#pragma once

#include "burthen.h"

#define BT_LAYERS_AUTO (-1)
#define BT_LAYERS_ALL  (-2)

typedef enum bt_flash {
    BT_FLASH_AUTO,
    BT_FLASH_ON,
    BT_FLASH_OFF,
} bt_flash;

/* As std::stoi: blanks, a sign, digits; what follows is ignored ("32k" is 32). */
bool bt_value_int(const char *text, int32_t *ret);
/* As std::stof in the "C" locale: the longest prefix that is a number within a float's range. */
bool bt_value_real(const char *text, double *ret);
/* on enabled true 1 / off disabled false 0; nothing else, and in small letters. */
bool bt_value_on(const char *text, bool *ret);
bool bt_value_flash(const char *text, bt_flash *ret); /* as above, and auto or -1 */
/* auto is -1, all is -2, else an int: -1 means auto too, and less than -1 all, which is given back as -2. */
bool bt_value_layers(const char *text, int32_t *ret);
/* The index of text among words "a|b|c". */
bool bt_value_choice(const char *text, const char *words, int32_t *ret);
