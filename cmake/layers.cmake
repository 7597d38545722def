# SPDX-License-Identifier: MIT
# bt_layer(NAME SEES folders... LIBS targets...)
#
# One folder of src/ as an object library. Headers are included as "folder/file.h"; the include path holds a link to
# each folder that this one may see, and to no other, so a wrong include does not compile.
function(bt_layer name)
    cmake_parse_arguments(PARSE_ARGV 1 LAYER "" "" "SEES;LIBS")
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/layers/${name}")
    file(CREATE_LINK "${CMAKE_SOURCE_DIR}/src/${name}" "${CMAKE_BINARY_DIR}/layers/${name}/${name}" SYMBOLIC)
    file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${name}/*.c")
    add_library(bt_${name} OBJECT ${sources})
    target_compile_options(bt_${name} PRIVATE ${BT_COMPILE_FLAGS})
    # POSIX and the Linux calls behind src/base/os_*.c, src/probe and src/store
    target_compile_definitions(bt_${name} PRIVATE _GNU_SOURCE)
    if(BT_FAULT)
        target_compile_definitions(bt_${name} PRIVATE BT_FAULT)
    endif()
    target_include_directories(bt_${name} PRIVATE "${CMAKE_SOURCE_DIR}/include")
    foreach(seen IN ITEMS ${name} ${LAYER_SEES})
        target_include_directories(bt_${name} PRIVATE "${CMAKE_BINARY_DIR}/layers/${seen}")
    endforeach()
    target_link_libraries(bt_${name} PRIVATE ${LAYER_LIBS})
endfunction()
