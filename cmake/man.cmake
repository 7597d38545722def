# SPDX-License-Identifier: MIT
# The manual's pages (man/*.scd), rendered where scdoc is there, and the scripts of the shells, which the program prints
# when it has been linked. Both are made with the target burthen, so that an install after it has them.
find_program(SCDOC scdoc)
if(SCDOC)
    file(GLOB pages CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/man/*.scd")
    set(man_rendered "")
    foreach(page IN LISTS pages)
        get_filename_component(name "${page}" NAME_WLE) # burthen-plan.1
        string(REGEX REPLACE ".*\\." "" section "${name}")
        set(rendered "${CMAKE_BINARY_DIR}/man/${name}")
        # Aside and renamed: a page that is cut short would be taken for a whole one. scdoc heeds SOURCE_DATE_EPOCH.
        add_custom_command(OUTPUT "${rendered}"
            COMMAND "${CMAKE_COMMAND}" -E make_directory "${CMAKE_BINARY_DIR}/man"
            COMMAND sh -c "'${SCDOC}' <'${page}' >'${rendered}.part' && mv '${rendered}.part' '${rendered}'"
            DEPENDS "${page}" VERBATIM)
        install(FILES "${rendered}" DESTINATION "share/man/man${section}")
        list(APPEND man_rendered "${rendered}")
    endforeach()
    add_custom_target(man DEPENDS ${man_rendered})
    add_dependencies(burthen man)
else()
    message(STATUS "scdoc was not found: the manual's pages are not built")
endif()

if(NOT CMAKE_CROSSCOMPILING)
    set(scripts "${CMAKE_BINARY_DIR}/completions")
    file(MAKE_DIRECTORY "${scripts}")
    foreach(shell IN ITEMS bash zsh fish)
        add_custom_command(TARGET burthen POST_BUILD
            COMMAND sh -c "'$<TARGET_FILE:burthen>' completion ${shell} >'${scripts}/burthen.${shell}'" VERBATIM)
    endforeach()
    install(FILES "${scripts}/burthen.bash" DESTINATION share/bash-completion/completions RENAME burthen)
    install(FILES "${scripts}/burthen.zsh" DESTINATION share/zsh/site-functions RENAME _burthen)
    install(FILES "${scripts}/burthen.fish" DESTINATION share/fish/vendor_completions.d)
endif()
