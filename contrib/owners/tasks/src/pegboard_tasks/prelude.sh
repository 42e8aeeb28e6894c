# Read by bash before a command (BASH_ENV). It leaves one trap behind: the directory in which the shell ends is written
# to a descriptor that nothing else uses. So it is known after `exit`, `set -e` and a signal, and, where the command
# says exec, before the shell is replaced. Nothing of this is seen by the command's own children.
if [[ -n ${PEG_BASH_ENV:-} ]]; then
    BASH_ENV=$PEG_BASH_ENV
    unset PEG_BASH_ENV
    . "$BASH_ENV"
else
    unset BASH_ENV
fi
builtin eval "builtin trap '{ builtin pwd -P; builtin printf \"\\0\"; } 2>/dev/null >&$PEG_CWD_FD' EXIT"
if [[ $BASH_EXECUTION_STRING == *exec* ]]; then
    builtin eval "builtin trap '[[ \$BASH_COMMAND == *exec* ]] && { builtin pwd -P; builtin printf \"\\0\"; } 2>/dev/null >&$PEG_CWD_FD' DEBUG"
fi
builtin unset PEG_CWD_FD
