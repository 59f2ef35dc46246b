#compdef leat
# Completion of leat for zsh: commands and options from the program's own usage texts, else file names.
local command=${words[2]}
if (( CURRENT == 2 )); then
    compadd -- ${(f)"$(leat --help 2>/dev/null | sed -n 's/^  *leat \([a-z][a-z]*\).*/\1/p; s/^  \([a-z][a-z]*\)  .*/\1/p' | sort -u)"} --help --version
elif [[ ${words[CURRENT]} == -* ]]; then
    compadd -- ${(f)"$(leat $command --help 2>/dev/null | sed -n '/^  -/{s/^  //; s/  .*//; p}' | grep -oE -- '(^|[ ,])--?[a-z][a-z0-9-]*' | tr -d ' ,')"}
else
    _files
fi
