// Branches whose clients can take no more for a while: no step computes them, they go on where they were, and give up
// their room to those that need it.
#include <catch2/catch_test_macros.hpp>

#include "scheduler_script.h"

using llmrt::test::check_script;

TEST_CASE("a paused row is left out, the others are not, and it goes on behind its last token") {
  check_script(R"(config pool=16 block=4
add 1 prompt=4 max=8
add 2 prompt=4 max=8
plan
  1[0,4)* 2[0,4)*
commit
  1: 100
  2: 100
pause 1
plan
  2[4,5)*
commit
  2: 101
plan
  2[5,6)*
commit
  2: 102
go 1
plan
  1[4,5)* 2[6,7)*
commit
  1: 101
  2: 103
)");
}

TEST_CASE("one step ahead a token in flight is still told, and none behind it") {
  check_script(R"(config pool=16 block=4
add 1 prompt=4 max=8
plan
  1[0,4)*
plan
  1[4,5)?*
pause 1
commit
  1: 100
plan
  nothing
commit
  1: 101
plan
  nothing
go 1
plan
  1[5,6)*
)");
}

TEST_CASE("a paused row yields first, whatever its class, and waits until it may go on") {
  check_script(R"(config pool=4 block=4 reserve=1
add 1 prompt=4 max=8
add 2 prompt=4 max=8 class=background
plan
  1[0,4)* 2[0,4)*
commit
  1: 100
  2: 100
pause 1
plan
  2[4,5)*
commit
  2: 101
add 3 prompt=7 max=3 class=background
plan
  2[5,6)*
commit
  2: 102
plan
  2[6,7)* 3[0,7)*
preemptions
  1 for 3: 4 tokens, 1 blocks, time 1
states
  1 PREEMPTED, 2 DECODING, 3 DECODING
commit
  2: 103
  3: 100
plan
  2[7,8)* 3[7,8)*
commit
  2: 104
  3: 101
cancel 2
  2: cancelled
cancel 3
  3: cancelled
plan
  nothing
go 1
plan
  1[0,5)*
)");
}

TEST_CASE("a paused request that has not begun does not begin, and holds up nobody") {
  check_script(R"(config pool=16 block=4
add 1 prompt=4 max=8
add 2 prompt=4 max=8
pause 1
plan
  2[0,4)*
commit
  2: 100
cancel 2
  2: cancelled
plan
  nothing
go 1
plan
  1[0,4)*
pause 1
leave 1
  1: disconnected
)");
}
