# Writes the commit that is built into a header, when it changed: cmake -DSOURCE_DIR=... -DOUTPUT=... -P git_commit.cmake
# Empty where there is no git or no repository.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=40 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failure)
if(failure)
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define LLMRT_GIT_COMMIT \"${commit}\"\n")
