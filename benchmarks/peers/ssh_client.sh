#!/bin/sh
# One host with OpenSSH: ssh_client.sh SCRIPT OUT CONFIG KEX NAME ADDRESS. KEX is "default" or a list of algorithms.
# Standard input must stay open until the answer has ended: ssh holds both ends of a FIFO that cat fills.
script=$1 out=$2 config=$3 kex=$4 name=$5 address=$6
[ "$kex" = default ] || set -- -o "KexAlgorithms=$kex"
[ "$kex" != default ] || set --
cat "$script" >"$out/$name.in" &
exec ssh -F "$config" "$@" "$address" 'exec /bin/sh' <>"$out/$name.in" >"$out/$name"
