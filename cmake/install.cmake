# SPDX-License-Identifier: MIT
# bin/burthen, and beside it the llama.cpp libraries that it was built against, private: they are of one exact version
# (docs/design.md M9) and must neither shadow a system's own nor be replaced by it.
if(BT_ENGINE)
    install(TARGETS burthen RUNTIME DESTINATION bin)
    bt_run_path(burthen "${LLAMA_CPP_BUILD}/bin" "$ORIGIN/../lib/burthen" bin/burthen)
    install(TARGETS burthen-template RUNTIME DESTINATION lib/burthen)
    # Looked for at install time: which backends there are depends on LLAMA_CMAKE_ARGS. Links stay links; the
    # libraries' own run path is $ORIGIN (tools/build-llama.sh).
    install(DIRECTORY "${LLAMA_CPP_BUILD}/bin/" DESTINATION lib/burthen USE_SOURCE_PERMISSIONS
        FILES_MATCHING PATTERN "libllama.so*" PATTERN "libggml*.so*"
        # what `burthen serve` starts for a model file, where it was built (make llama-server)
        PATTERN "llama-server" PATTERN "libllama-server-impl.so" PATTERN "libllama-common.so*" PATTERN "libmtmd.so*")
    install(FILES LICENSE THIRD_PARTY_NOTICES.md DESTINATION share/doc/burthen)
endif()
