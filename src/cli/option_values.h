/* SPDX-License-Identifier: MIT
 * option_values.h: values that are more than a number or a name: one parser each, as bt_option.parse wants them. The
 * target is a bt_cli_options. */
#pragma once

#include "cli/options.h"

bt_status bt_cli_parse_budget(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_type_k(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_type_v(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_rope_scaling(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_speculate(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_draft(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_projector(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_model_word(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_fetched(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_address(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_fraction(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_allowed_host(const char *value, void *target, bt_error *err);

/* Devices (option_devices.c). */
bt_status bt_cli_parse_gpu_layers(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_cpu_moe(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_device(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_gpu_mem(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_tensor_split(const char *value, void *target, bt_error *err);
bt_status bt_cli_parse_rpc(const char *value, void *target, bt_error *err);
