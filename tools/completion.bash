# Completion of leat for bash. Commands and options come from the program's own usage texts, so that this
# file never has to change with them.
_leat() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= i words
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} != -* ]] && { command=${COMP_WORDS[i]}; break; }
    done
    if [[ -z $command ]]; then
        # "  run MODEL   generate text ..." lines of the usage
        words=$("${COMP_WORDS[0]}" --help 2>/dev/null | sed -n 's/^  *leat \([a-z][a-z]*\).*/\1/p; s/^  \([a-z][a-z]*\)  .*/\1/p' | sort -u)
        mapfile -t COMPREPLY < <(compgen -W "$words --help --version" -- "$word")
        return
    fi
    if [[ $word == -* ]]; then
        words=$("${COMP_WORDS[0]}" "$command" --help 2>/dev/null | sed -n '/^  -/{s/^  //; s/  .*//; p}' | grep -oE -- '(^|[ ,])--?[a-z][a-z0-9-]*' | tr -d ' ,')
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
    fi
    if [[ $before == -* ]]; then
        # "  --kv-type f32|f16|q8_0" offers the choices of the option before
        words=$("${COMP_WORDS[0]}" "$command" --help 2>/dev/null | grep -E -- "(^|[ ,])$before([ ,]|\$)" | grep -oE '[a-z0-9_]+(\|[a-z0-9_]+)+' | head -n 1)
        if [[ -n $words ]]; then
            mapfile -t COMPREPLY < <(compgen -W "${words//|/ }" -- "$word")
            return
        fi
    fi
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
}
complete -F _leat leat
