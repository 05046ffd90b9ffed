# Completion of sdp-train: source this file in bash; in zsh first run `autoload -U +X bashcompinit && bashcompinit`.
# Commands, options and keys are those that the program itself prints, so that none is written here.

# The words after which --help or spec starts a line.
_sdp_train_commands() { "$1" --help 2>/dev/null | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\)  .*/\1/p'; }
_sdp_train_options() { "$@" --help 2>/dev/null | grep -oE -- '(^|[ ,[])--[a-z][a-z-]*' | grep -oE -- '--[a-z-]+' | sort -u; }
_sdp_train_keys() { "$1" spec 2>/dev/null | sed -n 's/^\([a-z_]*\(\.[a-z_]*\)*\)  .*/\1=/p' | grep -v '^key='; }

_sdp_train() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=() words=''
  if [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} != -* ]]; then command=("${COMP_WORDS[1]}"); fi
  case $previous:$current in
    --set:*)
      words=$(_sdp_train_keys "$program")
      compopt -o nospace 2>/dev/null
      ;;
    *:-*) words=$(_sdp_train_options "$program" "${command[@]}") ;;
    *) if [[ $COMP_CWORD -eq 1 ]]; then words=$(_sdp_train_commands "$program"); fi ;;
  esac
  # Without words: files (complete -o default).
  # shellcheck disable=SC2207  # no word has a blank
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}

complete -o default -F _sdp_train sdp-train
