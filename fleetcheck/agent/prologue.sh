# The shell's part of the agent. prologue.py drops these comments, appends the settings and calls fleetcheck_main.

# Ends the whole agent where the connection ends and nobody inside noticed: an interpreter that hangs before its
# first line, a shell stuck on a dead mount. The program itself needs less than the two seconds to go. The shell of
# a connection leads its process group; under sudo it may not, and then it is killed alone.
fleetcheck_watch() {
    trap - TERM HUP
    while read -r fleetcheck_line; do :; done <&3
    exec 3<&-
    sleep 2
    kill -TERM "$$"
    sleep 1
    kill -KILL -"$$" || kill -KILL "$$"
}

# The program ends what it started; what the shell itself started is in its group. What does not end is the watcher's.
fleetcheck_stop() {
    trap - TERM HUP
    if [ -n "$fleetcheck_child" ]; then
        kill -TERM "$fleetcheck_child"
        wait "$fleetcheck_child"
    fi
    kill "$fleetcheck_watcher"
    kill -KILL -"$$" 2>/dev/null
    exit 3
}

# A trap runs only while the shell waits, never while it has a command in the foreground.
fleetcheck_wait() {
    wait "$fleetcheck_child"
    fleetcheck_rc=$?
    fleetcheck_child=
    return "$fleetcheck_rc"
}

fleetcheck_main() {
    exec 3<&0
    fleetcheck_child=
    fleetcheck_watch >/dev/null 2>&1 </dev/null &
    fleetcheck_watcher=$!
    trap fleetcheck_stop TERM HUP
    fleetcheck_newline='
'
    fleetcheck_look
    fleetcheck_rc=$?
    trap - TERM HUP
    kill "$fleetcheck_watcher"
    return "$fleetcheck_rc"
}

fleetcheck_look() {
    IFS=$fleetcheck_newline
    set -f
    fleetcheck_tried=$fleetcheck_newline
    for fleetcheck_candidate in $fleetcheck_pythons; do
        if fleetcheck_candidates "$fleetcheck_candidate"; then return 0; fi
    done
    for fleetcheck_item in $fleetcheck_venvs; do
        fleetcheck_home "$fleetcheck_item"
        set +f
        for fleetcheck_venv in "$fleetcheck_sysroot"$fleetcheck_path; do
            if fleetcheck_try "$fleetcheck_venv/bin/python"; then return 0; fi
        done
        set -f
    done
    unset IFS
    set +f
    fleetcheck_raw &
    fleetcheck_child=$!
    fleetcheck_wait
}

# python3 of the login's PATH is taken where it is the machine's, never out of the login folder.
fleetcheck_candidates() {
    if [ "$1" != PATH ]; then
        fleetcheck_try "$1"
        return
    fi
    fleetcheck_found=$(command -v python3 2>/dev/null)
    case $fleetcheck_found in
    "${HOME:-/nonexistent}"/* | "$PWD"/*) ;;
    /*) if fleetcheck_try "$fleetcheck_found"; then return 0; fi ;;
    esac
    set +f
    for fleetcheck_found in /usr/bin/python3.[89] /usr/bin/python3.1[0-9]; do
        if fleetcheck_try "$fleetcheck_found"; then return 0; fi
    done
    set -f
    return 1
}

# 0 is an answer given, 3 one that was ended from outside; all else is an interpreter that could not do it.
fleetcheck_try() {
    case $fleetcheck_tried in *"$fleetcheck_newline$1$fleetcheck_newline"*) return 1 ;; esac
    fleetcheck_tried=$fleetcheck_tried$1$fleetcheck_newline
    [ -f "$1" ] && [ -x "$1" ] || return 1
    printf %s "$fleetcheck_agent" | "$1" -I -S -B - &
    fleetcheck_child=$!
    fleetcheck_wait
    case $? in 0 | 3) return 0 ;; esac
    return 1
}

fleetcheck_home() {
    case $1 in
    "~/"*) fleetcheck_path=$HOME/${1#"~/"} ;;
    *) fleetcheck_path=$1 ;;
    esac
}

# From here on: the host without Python. The same parts, fewer of them, in the same frames; cksum is POSIX's CRC.
fleetcheck_raw() {
    trap - TERM HUP
    exec 3<&-
    fleetcheck_tab=$(printf '\t')
    fleetcheck_frame agent "{\"via\": \"sh\", \"version\": $(fleetcheck_json "$fleetcheck_version"), \"python\": null, \
\"executable\": null, \"uid\": $(id -u), \"user\": $(fleetcheck_json "$(id -un 2>/dev/null)"), \
\"sysroot\": $(fleetcheck_json "$fleetcheck_sysroot"), \"time\": $(date +%s)}"
    fleetcheck_frame system "{\"hostname\": $(fleetcheck_json "$(uname -n)"), \
\"kernel\": $(fleetcheck_json "$(uname -r)"), \"machine\": $(fleetcheck_json "$(uname -m)")}"
    fleetcheck_frame driver "{\"proc_version\": $(fleetcheck_file /proc/driver/nvidia/version), \
\"module_version\": $(fleetcheck_file /sys/module/nvidia/version), \"devices\": [$(fleetcheck_devices)]}"
    fleetcheck_frame pci "$(fleetcheck_pci)"
    fleetcheck_listed
    fleetcheck_frame smi "$(fleetcheck_smi)"
    fleetcheck_frame end '{"reason": "done", "wall": null, "cpu": null, "max_rss_kib": null, "errors": ["no Python of 3.8 or newer: the shell gathered"]}'
}

fleetcheck_frame() {
    fleetcheck_sum=$(printf %s "$2" | cksum)
    printf '\n%s %s %s cksum:%s\n%s\n' "$fleetcheck_marker" "$1" "${fleetcheck_sum#* }" "${fleetcheck_sum%% *}" "$2"
}

# Standard input as the inside of a JSON string: ASCII, bounded, what is not printable as a question mark.
fleetcheck_escape() {
    head -c 65536 | LC_ALL=C tr -c '\11\12\40-\176' '?' |
        LC_ALL=C sed -e 's/[\\"]/\\&/g' -e "s/$fleetcheck_tab/\\\\t/g" -e '$!s/$/\\n/' | tr -d '\n'
}

fleetcheck_json() {
    printf '"%s"' "$(printf %s "$1" | fleetcheck_escape)"
}

fleetcheck_file() {
    if [ -f "$fleetcheck_sysroot$1" ] && [ -r "$fleetcheck_sysroot$1" ]; then
        printf '{"path": %s, "text": "%s", "truncated": false}' "$(fleetcheck_json "$1")" "$(fleetcheck_escape <"$fleetcheck_sysroot$1")"
    elif [ -e "$fleetcheck_sysroot$1" ]; then
        printf '{"path": %s, "error": "EACCES"}' "$(fleetcheck_json "$1")"
    else
        printf '{"path": %s, "error": "ENOENT"}' "$(fleetcheck_json "$1")"
    fi
}

fleetcheck_devices() {
    fleetcheck_comma=
    for fleetcheck_device in "$fleetcheck_sysroot"/dev/nvidia*; do
        [ -e "$fleetcheck_device" ] || continue
        printf '%s%s' "$fleetcheck_comma" "$(fleetcheck_json "${fleetcheck_device##*/}")"
        fleetcheck_comma=', '
    done
}

fleetcheck_word() {
    fleetcheck_value=
    read -r fleetcheck_value 2>/dev/null <"$1" || [ -n "$fleetcheck_value" ] || { printf null; return; }
    fleetcheck_json "$fleetcheck_value"
}

fleetcheck_pci() {
    if [ ! -d "$fleetcheck_sysroot/sys/bus/pci/devices" ]; then
        printf '{"functions": [], "error": "ENOENT"}'
        return
    fi
    printf '{"functions": ['
    fleetcheck_comma=
    for fleetcheck_function in "$fleetcheck_sysroot"/sys/bus/pci/devices/*; do
        fleetcheck_vendor=
        { read -r fleetcheck_vendor <"$fleetcheck_function/vendor"; } 2>/dev/null
        [ "$fleetcheck_vendor" = 0x10de ] || continue
        printf '%s{"bus_id": %s, "vendor": "0x10de", "error": null, "driver": null' "$fleetcheck_comma" "$(fleetcheck_json "${fleetcheck_function##*/}")"
        for fleetcheck_key in device class subsystem_vendor subsystem_device revision current_link_width \
            max_link_width current_link_speed max_link_speed numa_node; do
            printf ', "%s": %s' "$fleetcheck_key" "$(fleetcheck_word "$fleetcheck_function/$fleetcheck_key" 2>/dev/null)"
        done
        printf ', "port_max_link_width": %s' "$(fleetcheck_word "$fleetcheck_function/../max_link_width" 2>/dev/null)"
        printf ', "iommu_type": %s' "$(fleetcheck_word "$fleetcheck_function/iommu_group/type" 2>/dev/null)"
        printf '}'
        fleetcheck_comma=', '
    done
    printf '], "error": null}'
}

# The listed environments alone. Each interpreter was tried above: what is there did not work.
fleetcheck_listed() {
    fleetcheck_items=
    fleetcheck_unmatched=
    fleetcheck_index=0
    fleetcheck_frames=
    IFS=$fleetcheck_newline
    set -f
    for fleetcheck_item in $fleetcheck_venvs; do
        fleetcheck_home "$fleetcheck_item"
        set +f
        fleetcheck_matched=
        for fleetcheck_venv in "$fleetcheck_sysroot"$fleetcheck_path; do
            case $fleetcheck_item in
            *[*?[]*) [ -d "$fleetcheck_venv/bin" ] || [ -e "$fleetcheck_venv/pyvenv.cfg" ] || continue ;;
            esac
            fleetcheck_matched=yes
            fleetcheck_states
            fleetcheck_shown=$(fleetcheck_json "${fleetcheck_venv#"$fleetcheck_sysroot"}")
            fleetcheck_named=$(fleetcheck_json "$fleetcheck_item")
            fleetcheck_items="$fleetcheck_items${fleetcheck_items:+, }{\"index\": $fleetcheck_index, \"path\": $fleetcheck_shown, \
\"item\": $fleetcheck_named, \"origin\": \"listed\", \"state\": \"$fleetcheck_state\"}"
            fleetcheck_frame "venv/$fleetcheck_index" "{\"index\": $fleetcheck_index, \"path\": $fleetcheck_shown, \"real\": null, \"item\": $fleetcheck_named, \
\"origin\": \"listed\", \"state\": \"$fleetcheck_ran\", \"error\": $(fleetcheck_json "$fleetcheck_why"), \"rc\": null, \
\"stderr\": \"\", \"cfg\": $(fleetcheck_file "${fleetcheck_venv#"$fleetcheck_sysroot"}/pyvenv.cfg"), \"activation\": null}"
            fleetcheck_index=$((fleetcheck_index + 1))
        done
        [ -n "$fleetcheck_matched" ] || fleetcheck_unmatched="$fleetcheck_unmatched${fleetcheck_unmatched:+, }$(fleetcheck_json "$fleetcheck_item")"
        set -f
    done
    unset IFS
    set +f
    fleetcheck_frame venvs "{\"items\": [$fleetcheck_items], \"unmatched\": [$fleetcheck_unmatched]}"
}

fleetcheck_states() {
    fleetcheck_state=present
    fleetcheck_ran=no-interpreter
    fleetcheck_why='no bin/python that can be run'
    if [ ! -e "$fleetcheck_venv" ]; then
        fleetcheck_state=missing
        fleetcheck_ran=missing
        fleetcheck_why=ENOENT
        fleetcheck_parent=${fleetcheck_venv%/*}
        while [ -n "$fleetcheck_parent" ] && [ ! -e "$fleetcheck_parent" ]; do fleetcheck_parent=${fleetcheck_parent%/*}; done
        if [ -n "$fleetcheck_parent" ] && [ -d "$fleetcheck_parent" ] && [ ! -x "$fleetcheck_parent" ]; then
            fleetcheck_state=unreadable
            fleetcheck_ran=unreadable
            fleetcheck_why=EACCES
        fi
    elif [ -d "$fleetcheck_venv" ] && [ ! -x "$fleetcheck_venv" ]; then
        fleetcheck_state=unreadable
        fleetcheck_ran=unreadable
        fleetcheck_why=EACCES
    elif [ -x "$fleetcheck_venv/bin/python" ]; then
        fleetcheck_ran=broken
        fleetcheck_why='bin/python does not run this program'
    elif [ ! -d "$fleetcheck_venv/bin" ]; then
        fleetcheck_state=not-a-venv
    fi
}

fleetcheck_find_stuck() {
    fleetcheck_stuck=
    for fleetcheck_process in "$fleetcheck_sysroot"/proc/[0-9]*; do
        fleetcheck_stat=
        { read -r fleetcheck_stat <"$fleetcheck_process/stat"; } 2>/dev/null
        case $fleetcheck_stat in
        *'(nvidia-smi) D '*) fleetcheck_stuck="$fleetcheck_stuck${fleetcheck_stuck:+, }${fleetcheck_process##*/}" ;;
        esac
    done
}

fleetcheck_smi() {
    fleetcheck_tool=
    fleetcheck_folders=/usr/bin:/usr/local/bin:/usr/lib/wsl/lib:/opt/bin:/run/nvidia/driver/usr/bin
    [ -n "$fleetcheck_sysroot" ] || fleetcheck_folders=$PATH:$fleetcheck_folders
    fleetcheck_searched=
    IFS=:
    set -f
    for fleetcheck_folder in $fleetcheck_folders; do
        case $fleetcheck_folder in /*) ;; *) continue ;; esac
        fleetcheck_searched="$fleetcheck_searched${fleetcheck_searched:+, }$(fleetcheck_json "$fleetcheck_folder")"
        if [ -z "$fleetcheck_tool" ] && [ -f "$fleetcheck_sysroot$fleetcheck_folder/nvidia-smi" ] && [ -x "$fleetcheck_sysroot$fleetcheck_folder/nvidia-smi" ]; then
            fleetcheck_tool=$fleetcheck_folder/nvidia-smi
        fi
    done
    unset IFS
    set +f
    # A busy one passes through state D: it counts where it is there again a second later.
    fleetcheck_find_stuck
    [ -z "$fleetcheck_stuck" ] || { sleep 1; fleetcheck_find_stuck; }
    fleetcheck_skipped=null
    fleetcheck_fields=index,uuid,pci.bus_id,name,memory.total,driver_version,compute_cap,serial,vbios_version,persistence_mode,ecc.mode.current,ecc.mode.pending,ecc.errors.uncorrected.volatile.total,retired_pages.pending,mig.mode.current,mig.mode.pending,pcie.link.width.current,pcie.link.width.max,pcie.link.gen.current,pcie.link.gen.max,pstate,utilization.gpu,temperature.gpu,power.limit,power.max_limit,clocks_throttle_reasons.active,remapped_rows.pending,remapped_rows.failure,gpu_recovery_action
    fleetcheck_query=null
    fleetcheck_retry=null
    if [ -n "$fleetcheck_stuck" ]; then
        fleetcheck_skipped='"d-state"'
    elif [ -n "$fleetcheck_tool" ]; then
        fleetcheck_query=$(fleetcheck_call "$fleetcheck_fields")
        case $fleetcheck_query in
        *'" is not a valid field to query'*)
            # As smi.py does: what stands before the refused field is known. The answer is JSON, so the quotes are escaped.
            fleetcheck_refused=${fleetcheck_query#*Field \\\"}
            fleetcheck_refused=${fleetcheck_refused%%\\*}
            case ,$fleetcheck_fields, in
            *,compute_cap,*,"$fleetcheck_refused",*) fleetcheck_fewer=${fleetcheck_fields%%,"$fleetcheck_refused"*} ;;
            *) fleetcheck_fewer=index,uuid,pci.bus_id,name,memory.total,driver_version ;;
            esac
            fleetcheck_retry=$(fleetcheck_call "$fleetcheck_fewer")
            ;;
        esac
    fi
    fleetcheck_shown=null
    [ -z "$fleetcheck_tool" ] || fleetcheck_shown=$(fleetcheck_json "$fleetcheck_tool")
    printf '{"path": %s, "searched": [%s], "d_state": [%s], "skipped": %s, "version": null, "query": %s, "retry": %s}' \
        "$fleetcheck_shown" "$fleetcheck_searched" "$fleetcheck_stuck" "$fleetcheck_skipped" "$fleetcheck_query" "$fleetcheck_retry"
}

# Both streams come as stdout, and the exit status on a line behind them.
fleetcheck_call() {
    fleetcheck_limit=
    # In a process group of its own, as coreutils' timeout starts it, it would outlive the connection.
    for fleetcheck_flag in "" " --foreground"; do
        if timeout$fleetcheck_flag 9 true 2>/dev/null; then fleetcheck_limit="timeout$fleetcheck_flag -s KILL $fleetcheck_smi_limit"; fi
    done
    fleetcheck_began=$(date +%s)
    fleetcheck_out=$({
        LC_ALL=C $fleetcheck_limit "$fleetcheck_sysroot$fleetcheck_tool" "--query-gpu=$1" --format=csv,noheader,nounits 2>&1 </dev/null
        printf '\n%s' "$?"
    } | head -c 65536)
    fleetcheck_rc=${fleetcheck_out##*"$fleetcheck_newline"}
    fleetcheck_late=false
    fleetcheck_cut=false
    case $fleetcheck_rc in
    137) fleetcheck_late=true fleetcheck_rc=null ;;
    '' | *[!0-9]*) fleetcheck_cut=true fleetcheck_rc=null ;;
    esac
    printf '{"fields": ["%s"], "call": {"argv": [%s, "--query-gpu=%s", "--format=csv,noheader,nounits"], "rc": %s, ' \
        "$(printf %s "$1" | sed 's/,/", "/g')" "$(fleetcheck_json "$fleetcheck_tool")" "$1" "$fleetcheck_rc"
    printf '"stdout": %s, "stderr": "", "seconds": %s, "timed_out": %s, "truncated": %s, "error": null}}' \
        "$(fleetcheck_json "${fleetcheck_out%"$fleetcheck_newline"*}")" "$(($(date +%s) - fleetcheck_began))" "$fleetcheck_late" "$fleetcheck_cut"
}
