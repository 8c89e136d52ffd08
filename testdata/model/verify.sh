#!/usr/bin/env bash
# Checks the models of reseat.v1, of the cluster and of durable sessions with Spin: what must hold holds,
# and each broken rule is found out. DEEP=1 checks larger bounds as well, which takes longer and
# up to 4 GiB. Needs Spin and gcc, which it installs where they are missing: as
# .ci/tools does, on a Debian-like distribution.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
work=$(mktemp -d)
model=reseat.pml
fair= # -f: what can always happen does happen
opt=-O1 # for searches that take longer than gcc
nfair=4 # there may be four processes for each, less two
trap 'rm -rf "$work"' EXIT
failed=0
TIMEFORMAT=%U # seconds of the processor, however busy the machine is

tools() {
  local packages=() sudo=
  command -v spin >/dev/null || packages+=(spin)
  command -v gcc >/dev/null || packages+=(gcc libc6-dev)
  [ ${#packages[@]} -eq 0 ] && return
  [ "$(id -u)" = 0 ] || sudo=sudo
  echo "installing: ${packages[*]}"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

# verifier "FLAGS OF GCC" -DFOO...: makes ./pan. Steps are merged by hand, as
# d_step, so that Spin's own reduction would find nothing more.
verifier() {
  local flags=$1
  shift
  rm -f pan* ./*.trail
  spin -a "$@" "$model" >spin.out 2>&1 || { cat spin.out; exit 1; }
  # shellcheck disable=SC2086
  gcc $flags -DNOREDUCE -DMEMLIM=4000 -o pan pan.c
}

# run FLAGS...: runs ./pan into pan.out. A search that found nothing and was not exhaustive is no result.
run() {
  { time timeout 3600 ./pan -m10000 -n "$@" >pan.out 2>&1 || true; } 2>cpu.out
  if ! grep -q 'elapsed time' pan.out || grep -q 'max search depth too small' pan.out ||
    { [ "$(errors)" = 0 ] && grep -q 'Search not completed' pan.out; }; then
    cat pan.out
    exit 1
  fi
}

# trace -DFOO...: the run that was found, up to where something broke; of one that goes round, the round.
trace() {
  spin -t -T "$@" "$model" 2>/dev/null |
    sed -nE 's/^ +//; s/^<<<<<START OF CYCLE>>>>>/again and again:/; /^(client|gateway|node [0-9]|network|engine|game server|rival|again and again):|^BROKEN|^REACHED/p' |
    awk '/^again/ {round = ""} {round = round $0 "\n"} /^(BROKEN|REACHED)/ {exit} END {printf "%s", round}'
}

errors() { sed -nE 's/.*errors: ([0-9]+)$/\1/p' pan.out; }

counts() {
  awk -v cpu="$(cat cpu.out)" '/states, stored/ {states = $1} /total actual memory/ {memory = $1}
    END {printf "%10d states %6d MB %6.1f s", states, memory, cpu}' pan.out
}

verdict() {
  if [ "$(errors)" = 0 ]; then
    printf 'holds   %-82s %s\n' "$1" "$(counts)"
    return
  fi
  shift
  failed=1
  printf 'FAILS   %s\n' "$*"
  grep -m1 '^pan:1:' pan.out || true
  trace "$@" | sed 's/^/        /'
}

# holds TITLE -DFOO...: every run keeps every promise.
holds() {
  verifier "$opt -DSAFETY -DCOLLAPSE" "${@:2}"
  run
  verdict "$@"
}

# settles TITLE -DFOO...: there is no way to go on for ever without getting there.
settles() {
  verifier "$opt -DCOLLAPSE -DNFAIR=$nfair" -DALWAYS_SETTLES "${@:2}"
  run -a $fair
  verdict "$1" -DALWAYS_SETTLES "${@:2}"
}

# found TITLE "WHAT IS SAID" -DFOO...: looks at a run that must have gone wrong, in just that way.
found() {
  local title=$1 said=$2 good='fails, as it must' bad='DOES NOT FAIL AS IT MUST'
  shift 2
  [ "$said" != REACHED ] || good=reached bad='NOT REACHED'
  trace "$@" >trace
  if [ "$(errors)" != 0 ] && tail -n 1 trace | grep -qF -- "$said"; then
    printf '\n%s: %s\n' "$good" "$title"
  else
    failed=1
    printf '\n%s: %s\n' "$bad" "$title"
  fi
  sed 's/^/        /' trace
}

# breaks TITLE "WHAT IS SAID" -DFOO...: the shortest run that breaks a promise.
breaks() {
  verifier '-O0 -DSAFETY -DBFS' -DSHORTEST "${@:3}"
  run
  found "$1" "$2" -DSHORTEST "${@:3}"
}

# circles TITLE "WHAT IS DONE AGAIN AND AGAIN" -DFOO...: a run that never settles.
circles() {
  verifier "-O0 -DNFAIR=$nfair" -DALWAYS_SETTLES "${@:3}"
  run -a $fair
  found "$1" "$2" -DALWAYS_SETTLES "${@:3}"
}

tools
cp "$here"/*.pml "$work"
cd "$work"

small=(-DUP=1 -DDOWN=1)
tight=("${small[@]}" -DRING=1 -DWINDOW=1)
doubt=(-DSUSPICION=1 -DSILENCE=1)
states=(-DUP=0 -DDOWN=4 -DRING=4 -DSTATES=1)

holds 'both directions, two messages each, three faults' -DFAULTS=3
holds 'four messages down, three faults' -DUP=0 -DDOWN=4 -DFAULTS=3
holds 'four messages down, three of them states, two faults' "${states[@]}"
holds 'four messages up, three faults' -DUP=4 -DDOWN=0 -DFAULTS=3
holds 'one message each way, windows of one, four faults' "${tight[@]}" -DFAULTS=4
holds 'four connections at once, three faults' "${small[@]}" -DFAULTS=3 -DSLOTS=4
holds 'the grace period may end, two faults' -DGRACE=1
holds 'bye, two faults' -DBYE=1
holds 'the game server closes, two faults' -DCLOSE=1
holds 'all three of these, two faults' "${small[@]}" -DBYE=1 -DGRACE=1 -DCLOSE=1
holds 'a hard resume, three faults' "${small[@]}" -DHARD=1 -DFAULTS=3
holds 'a hard resume, and all three of these, two faults' "${small[@]}" -DHARD=1 -DBYE=1 -DGRACE=1 -DCLOSE=1
holds 'somebody else has a copy of the token, two faults' "${small[@]}" -DRIVAL=1
holds 'suspicion, two faults' -DSUSPICION=1
holds 'suspicion, one message each way, windows of one, four faults' "${tight[@]}" -DSUSPICION=1 -DFAULTS=4
holds 'suspicion, four connections at once, three faults' "${small[@]}" -DSUSPICION=1 -DFAULTS=3 -DSLOTS=4
holds 'silence, two faults' -DSILENCE=1
holds 'silence for good, two faults' -DSILENCE=2
holds 'silence and suspicion, two faults' "${doubt[@]}"
holds 'silence and suspicion, one message each way, windows of one, three faults' "${tight[@]}" "${doubt[@]}" -DFAULTS=3
holds 'silence, suspicion, bye, the grace period and a close, two faults' "${small[@]}" "${doubt[@]}" -DBYE=1 -DGRACE=1 -DCLOSE=1
holds 'silence, suspicion and a hard resume, three faults' "${small[@]}" "${doubt[@]}" -DHARD=1 -DFAULTS=3
holds 'silence, suspicion and somebody else with a copy of the token, two faults' "${small[@]}" "${doubt[@]}" -DRIVAL=1
settles 'every run settles, two faults'
settles 'every run settles, a hard resume, two faults' "${small[@]}" -DHARD=1
settles 'every run settles, somebody else has a copy, one fault' "${small[@]}" -DRIVAL=1 -DFAULTS=1
settles 'every run settles, suspicion, two faults' "${small[@]}" -DSUSPICION=1
settles 'every run settles, suspicion and silence for good, two faults' "${small[@]}" -DSUSPICION=1 -DSILENCE=2

if [ -n "${DEEP:-}" ]; then
  holds 'one message each way, windows of one, five faults' "${tight[@]}" -DFAULTS=5
  holds 'four messages down, four faults' -DUP=0 -DDOWN=4 -DFAULTS=4
  holds 'four messages up, four faults' -DUP=4 -DDOWN=0 -DFAULTS=4
  holds 'a hard resume, both directions, three faults' -DHARD=1 -DFAULTS=3
  holds 'somebody else has a copy of the token, three faults' "${tight[@]}" -DRIVAL=1 -DFAULTS=3
  holds 'suspicion, two messages each, three faults' -DSUSPICION=1 -DFAULTS=3
  holds 'silence and suspicion, windows of one, four faults' "${tight[@]}" "${doubt[@]}" -DFAULTS=4
fi

breaks 'NO_FENCE: an older connection is still listened to' 'BROKEN I3' -DNO_FENCE
breaks 'NO_FENCE, seen from outside' 'BROKEN I2' -DNO_FENCE -DOUTSIDE
breaks 'SUPERSEDE_AT_ISSUE: a generation is superseded when the next one is issued' 'BROKEN: 4401 is a verdict' -DSUPERSEDE_AT_ISSUE
breaks 'NEVER_SUPERSEDED: no generation is ever superseded' 'BROKEN I4' -DNEVER_SUPERSEDED
breaks 'NEVER_SUPERSEDED, seen from outside' 'BROKEN: 4409 is a verdict' -DNEVER_SUPERSEDED -DOUTSIDE
breaks 'RESUME_CONFIRMS_NOTHING: only a message confirms' 'BROKEN: 4409 is a verdict' -DRESUME_CONFIRMS_NOTHING -DOUTSIDE
breaks 'HELLO_SAYS_WRITTEN: hello.received leaves out what is still to be written' 'BROKEN I2' -DHELLO_SAYS_WRITTEN -DOUTSIDE
breaks 'ACK_AT_ADMISSION: what is not written is acked' 'BROKEN I5, upward' -DACK_AT_ADMISSION
breaks 'QUEUE_DIES_WITH_CONNECTION: what was received is dropped with its connection' 'BROKEN I2' -DQUEUE_DIES_WITH_CONNECTION
breaks 'NO_ACK_AFTER_RESUME: what was acked on an older connection is not acked again' 'BROKEN: nothing goes on' -DNO_ACK_AFTER_RESUME -DWINDOW=1
breaks 'FORGET_WHEN_SENT: the replay buffer is trimmed when the socket has taken it' 'BROKEN I1' -DFORGET_WHEN_SENT -DOUTSIDE
breaks 'ONLY_NEWEST_SENT: received is judged by the newest connection alone' 'BROKEN: a client that keeps the rules is refused' -DONLY_NEWEST_SENT
breaks 'ACK_BEYOND_N: the client acks beyond N while it resumes' 'BROKEN: a client that keeps the rules is refused' -DACK_BEYOND_N
breaks 'VERDICT_ALWAYS: every 4409 is a verdict' 'BROKEN: 4409 is a verdict' -DVERDICT_ALWAYS
breaks 'ONLY_UNDER_WAY: attempts that were given up do not count' 'BROKEN: 4409 is a verdict' -DONLY_UNDER_WAY
breaks 'ONLY_SINCE_NEWEST: only those given up since the newest hello do' 'BROKEN: 4409 is a verdict' -DONLY_SINCE_NEWEST
breaks 'ONLY_UNDER_WAY, with suspicion: 4409 on the connection that spoke again' 'BROKEN: 4409 is a verdict' -DONLY_UNDER_WAY -DSUSPICION=1 -DFAULTS=1
breaks 'DEAF_WHILE_TRYING: data of the older connection is not taken beside a resume' 'BROKEN I1' -DDEAF_WHILE_TRYING -DSUSPICION=1 -DOUTSIDE
breaks 'WHOLE_RUN: a client that has a part of a run of replaced messages is told all of it' 'BROKEN: a message is skipped that is no state' -DWHOLE_RUN "${states[@]}"
breaks 'REPLACES_ANYTHING: a message that is no state is replaced' 'BROKEN: a message is skipped that is no state' -DREPLACES_ANYTHING "${states[@]}"
breaks 'REPLACES_NEWEST: the newest state is replaced' 'BROKEN: the newest state is skipped' -DREPLACES_NEWEST "${states[@]}"
breaks 'NEVER_DEAD: nobody gives up a connection that has fallen silent' 'BROKEN: nothing goes on' -DNEVER_DEAD -DSILENCE=2 "${small[@]}"
circles 'NO_VERDICT_EVER: a client that takes no refusal for an answer' 'refused with 4404' -DNO_VERDICT_EVER -DGRACE=1 "${small[@]}" -DFAULTS=1

printf '\nWhere reseat.v1 falls short, see docs/model.md:\n'
breaks 'NOT_BEFORE_HELLO: a waiting hard resume, 4409 by the letter of section 6' 'BROKEN: 4409 is a verdict' -DNOT_BEFORE_HELLO -DHARD=1
breaks 'SUPERSEDED_MEANS_THEFT: "a superseded token is a bug or a theft"' 'BROKEN: a superseded token' -DSUPERSEDED_MEANS_THEFT

printf '\nThat the model is not empty:\n'
breaks 'everything is delivered on the fifth generation' REACHED "${small[@]}" -DREACH=FIFTH_GENERATION
breaks 'three hellos are lost, one after the other' REACHED "${small[@]}" -DFAULTS=3 -DREACH=THREE_HELLOS_LOST
breaks 'an attempt that was given up takes over the connection that followed it' REACHED "${small[@]}" -DREACH=LATE_TAKEOVER
breaks 'a false alarm costs the connection: a resume that was dropped takes it over' REACHED "${small[@]}" -DSUSPICION=1 -DFAULTS=1 -DREACH=COSTLY_ALARM

printf '\nThe cluster:\n'
model=cluster.pml fair=-f
two=(-DSLOTS=2) # connections at once
calm=(-DPAUSES=0 -DPARTITIONS=0)

holds 'three nodes: a kill, a pause and a partition' "${two[@]}" -DFAULTS=0
holds 'three nodes: a kill, and two faults of connections' "${two[@]}" "${calm[@]}" -DFAULTS=2
holds 'three nodes: a pause, a partition, and one fault of connections' "${two[@]}" -DKILLS=0
holds 'three nodes: two kills, and a pause' "${two[@]}" -DKILLS=2 -DPARTITIONS=0 -DFAULTS=0
holds 'three nodes: a kill, an address used again, and one fault' "${two[@]}" -DREUSE=1 -DPARTITIONS=0
holds 'two nodes, three connections at once: a kill, a partition and one fault' -DNODES=2 -DPAUSES=0
settles 'every run settles: a kill, a pause and a partition' "${two[@]}" -DNODES=2 -DFAULTS=0
[ -z "${DEEP:-}" ] || holds 'three nodes: a kill, a pause, a partition, and one fault of connections' "${two[@]}"

breaks 'SILENT_IS_GONE: a session is lost whose node does not answer' 'BROKEN: 4404 is a verdict' -DSILENT_IS_GONE "${two[@]}"
breaks 'FRONT_ANSWERS_404: a node refuses the session that it has not got' 'BROKEN: 4404 is a verdict' -DFRONT_ANSWERS_404 "${two[@]}" "${calm[@]}"
breaks 'REFUSAL_ENDS_SESSION: 4504 ends the session' 'BROKEN: 4404 is a verdict' -DREFUSAL_ENDS_SESSION "${two[@]}" -DKILLS=0
breaks 'TAKES_4504_FOR_AN_ANSWER: a client does not come back after 4504' 'BROKEN: 4504 is a verdict' -DTAKES_4504_FOR_AN_ANSWER "${two[@]}" -DKILLS=0
breaks 'HOP_WITHOUT_LIMIT: what was passed on is passed on again' 'BROKEN: a third hop' -DHOP_WITHOUT_LIMIT -DREUSE=1 "${two[@]}" "${calm[@]}"
breaks 'OLD_FRONT_KEEPS: a resume takes over only what has come through the same node' 'BROKEN: nothing goes on' -DOLD_FRONT_KEEPS -DKILLS=0 "${two[@]}" "${calm[@]}"
breaks 'SUPERSEDE_AT_ISSUE: the hello is lost with the node that passes it on' 'BROKEN: 4401 is a verdict' -DSUPERSEDE_AT_ISSUE "${two[@]}" "${calm[@]}" -DFAULTS=0
circles 'NOBODY_IS_GONE: a node that was killed is only unreachable' 'client: resume' -DNOBODY_IS_GONE "${two[@]}" "${calm[@]}" -DNODES=2 -DFAULTS=0
breaks 'a resume that its front has given up takes over the one that followed it' REACHED "${two[@]}" -DKILLS=0 -DREACH=LATE_TAKEOVER
breaks 'the client is attached through its second front, the first one dead' REACHED "${two[@]}" "${calm[@]}" -DREACH=THROUGH_TWO_FRONTS

printf '\nDurable sessions:\n'
model=owners.pml fair=-f nfair=5 opt=-O0
up=(-DUP=1 -DDOWN=0)
down=(-DUP=0 -DDOWN=1)
none=(-DUP=0 -DDOWN=0)

holds 'a kill, one message each way' -DKILLS=1 -DUP=1 -DDOWN=1
holds 'a pause, a message up' -DPAUSES=1 "${up[@]}"
holds 'a pause, a message down' -DPAUSES=1 "${down[@]}"
holds 'a pause, one message each way' -DPAUSES=1 -DUP=1 -DDOWN=1
holds 'a pause, a message up, a game server that counts' -DPAUSES=1 -DGAME=2 "${up[@]}"
holds 'a pause, one message each way, a game server that counts' -DPAUSES=1 -DGAME=2 -DUP=1 -DDOWN=1
holds 'a pause and a stale read, a message down' -DSTALES=1 -DPAUSES=1 "${down[@]}"
holds 'a pause, the grace period may expire' -DPAUSES=1 -DGRACE=1 "${none[@]}"
holds 'a partition and a fault of connections, a message up' -DPARTITIONS=1 -DFAULTS=1 "${up[@]}"
holds 'a kill, and NATS away for a while' -DKILLS=1 -DOUTAGES=1 "${none[@]}"
holds 'a kill, a message up, redelivery off' -DREDELIVER=0 -DKILLS=1 "${up[@]}"
holds 'a hand-off, a message down' -DDRAIN=1 "${down[@]}"
holds 'three nodes, a kill and a pause' -DNODES=3 -DPAUSES=1 -DKILLS=1 "${none[@]}"
settles 'every run settles: a kill' -DKILLS=1 "${none[@]}"
settles 'every run settles: a pause' -DPAUSES=1 "${none[@]}"
holds 'hello first: a pause, two messages up, a game server that drops lower epochs' -DHELLO_FIRST -DGAME=1 -DPAUSES=1 -DUP=2 -DDOWN=0 -DAGAIN=0
holds 'hello first: a pause, a message down, a game server that closes the older connection' -DHELLO_FIRST -DREPLACES -DPAUSES=1 "${down[@]}"
holds 'hello first: a pause, a message up, redelivery off, what was sent counts' -DHELLO_FIRST -DREDELIVER=0 -DCOUNT_SENT -DPAUSES=1 "${up[@]}"

breaks 'CLAIM_UNJUDGED: a session is claimed from any node that does not answer' 'BROKEN F5' -DCLAIM_UNJUDGED -DPARTITIONS=1 "${none[@]}"
breaks 'BLIND_JUDGE: a node that hears nobody judges the others' 'BROKEN F5' -DBLIND_JUDGE -DPARTITIONS=1 "${none[@]}"
breaks 'READ_DECIDES: a claim is believed although its seat has changed since it was read' 'BROKEN O1' -DREAD_DECIDES -DPAUSES=1 -DSTALES=1 "${none[@]}"
breaks 'HELLO_BEFORE_CLAIM: a node says hello before it has written the seat' 'BROKEN O1' -DHELLO_BEFORE_CLAIM -DPAUSES=1 "${none[@]}"
breaks 'EPOCH_NOT_IN_GEN: generations go on without the epoch' 'BROKEN: 4401 is a verdict' -DEPOCH_NOT_IN_GEN -DPAUSES=1 "${none[@]}" -DFAULTS=1
breaks 'NO_FENCE: an owner keeps a session of a higher epoch' 'BROKEN O10' -DNO_FENCE -DPAUSES=1 "${none[@]}"
breaks 'WORDS_WITHOUT_CONTACT: an owner speaks for an absent player without asking' 'BROKEN O9' -DWORDS_WITHOUT_CONTACT -DGRACE=1 -DPAUSES=1 "${none[@]}"
breaks 'RECEIVED_WITHOUT_A: a claim does not go on from what the client was told is held' 'BROKEN: hello names less' -DRECEIVED_WITHOUT_A -DKILLS=1 "${up[@]}"
breaks 'RECEIVED_NAMES_QUEUE: hello.received names what is not written yet' 'BROKEN O5' -DRECEIVED_NAMES_QUEUE -DKILLS=1 "${up[@]}" -DFAULTS=1
breaks 'MOVED_HELLO_TAKEN: the client takes the hello of a failover although it has received more since' 'BROKEN O3' -DMOVED_HELLO_TAKEN -DPAUSES=1 -DUP=0 -DDOWN=1 -DAGAIN=2
breaks 'NO_RENUMBER: the claim keeps its numbers when the client is further' 'BROKEN O3' -DNO_RENUMBER -DPAUSES=1 -DUP=0 -DDOWN=1 -DAGAIN=2
breaks 'RENUMBER_IN_PLACE: the numbers move up, and the game server keeps its connection and the counts that it was told' 'BROKEN O3' -DRENUMBER_IN_PLACE -DPAUSES=1 -DGAME=2 "${down[@]}"
breaks 'HANDOFF_UPSTREAM_UNREAD: what the game server says after the Close is not read' 'BROKEN O3' -DHANDOFF_UPSTREAM_UNREAD -DDRAIN=1 "${down[@]}"
breaks 'HANDOFF_BEFORE_SEAT: the client is sent away before another node has the seat' 'BROKEN: a failover though no node has failed' -DHANDOFF_BEFORE_SEAT -DDRAIN=1 "${down[@]}"

printf '\nWhere durable sessions fall short, see docs/model.md:\n'
breaks 'a game server that drops lower epochs at once' 'BROKEN O4' -DGAME=1 -DPAUSES=1 -DUP=2 -DDOWN=0 -DAGAIN=0
breaks 'a game server that closes the older connection' 'BROKEN: the application gets end' -DREPLACES -DPAUSES=1 "${none[@]}"
breaks 'redelivery off, and a resume beside a living connection' 'BROKEN O4: a message comes twice' -DREDELIVER=0 -DPAUSES=1 "${up[@]}"
breaks 'a read that finds no seat' 'BROKEN: 4404 is a verdict' -DSTALES=1 -DSTALE_NO_RECORD -DPAUSES=1 "${none[@]}"
breaks 'WORDS_ON_RECENT_CONTACT: an owner speaks that has asked a while ago' 'BROKEN O9' -DWORDS_ON_RECENT_CONTACT -DGRACE=1 -DPAUSES=1 "${none[@]}"

echo
[ "$failed" = 0 ] || { echo 'The model does not do what it should.'; exit 1; }
echo 'The model does what it should.'
