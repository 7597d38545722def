# SPDX-License-Identifier: MIT
# The Debian package (make package): what `make install` puts under /usr, and what a package must hold beside it.
# docs/packaging.md.
if(NOT BT_ENGINE)
    return()
endif()

# Who answers for the package, as dpkg's own tools ask for it. Nobody does for one that was built at home.
set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
if("$ENV{DEBEMAIL}" STREQUAL "")
    set(maintainer "Burthen contributors <burthen@localhost>")
endif()
set(BT_PACKAGE_MAINTAINER "${maintainer}" CACHE STRING "Name <address> of who makes the package")

if(BT_PACKAGE)
    set(debian "${CMAKE_BINARY_DIR}/debian")
    string(TIMESTAMP BT_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC) # of SOURCE_DATE_EPOCH, where that is set
    configure_file(cmake/debian/changelog.in "${debian}/changelog" @ONLY)
    execute_process(COMMAND gzip -9nc "${debian}/changelog" OUTPUT_FILE "${debian}/changelog.gz" COMMAND_ERROR_IS_FATAL ANY)
    configure_file(cmake/debian/lintian-overrides "${debian}/burthen" COPYONLY)
    install(FILES "${debian}/changelog.gz" cmake/debian/copyright DESTINATION share/doc/burthen)
    install(FILES "${debian}/burthen" DESTINATION share/lintian/overrides)
endif()

file(READ cmake/debian/description CPACK_DEBIAN_PACKAGE_DESCRIPTION)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME burthen)
set(CPACK_PACKAGE_VENDOR "Burthen contributors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language models within a memory budget that is kept")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${BT_PACKAGE_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
# For programs that link lib/libburthen.a.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "liburing-dev, libjansson-dev, pkg-config")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${LLAMA_CPP_BUILD}/bin")
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON) # so that what is written at install time (the systemd unit) names /usr
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
include(CPack)
