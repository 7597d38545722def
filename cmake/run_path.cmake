# SPDX-License-Identifier: MIT
# Where a program looks for the libraries of llama.cpp: one absolute folder in the build, one beside it when installed.
#
# By hand, because CMake ends a build's run path with a colon to make room for the installed one, and to the loader the
# empty entry behind it is the working directory: a program that was built, and not installed, would take any library
# from where it was started. Of programs as DT_RPATH, which comes before LD_LIBRARY_PATH: a variable with an empty entry in
# it (":/opt/lib") names the working directory too. A test looks (integration.foreign_code).
function(bt_run_path target build_folder installed file)
    # The installed one is written over it, and must fit: a folder may be named twice.
    set(path "${build_folder}")
    string(LENGTH "${installed}" n_installed)
    string(LENGTH "${path}" n)
    while(n LESS n_installed)
        string(APPEND path ":${build_folder}")
        string(LENGTH "${path}" n)
    endwhile()
    set_target_properties(${target} PROPERTIES SKIP_BUILD_RPATH ON)
    target_link_options(${target} PRIVATE "LINKER:-rpath,${path}")
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
        target_link_options(${target} PRIVATE "LINKER:--disable-new-dtags")
    endif()
    string(REPLACE "$" "\\$" quoted "${installed}")
    install(CODE "file(RPATH_SET FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${file}\" NEW_RPATH \"${quoted}\")")
endfunction()
