// Several KV groups under the scheduler, as scripts.
#include <catch2/catch_test_macros.hpp>

#include "scheduler_script.h"

using namespace llmrt::test;

TEST_CASE("a late row keeps what its window holds until its token is drawn") {
  check_script(R"(config pool=16 block=4 window=4
add 1 prompt=6 max=9 bans=1
plan
  1[0,6)*
free
  14 14
plan
  1[6,7)?^
free
  14 14
commit
  1: 100
tail
  1*
free
  14 15
)");
}

TEST_CASE("a parked row computes its position again in the window that it had") {
  check_script(R"(config pool=16 block=4 window=4
add 1 prompt=6 max=9 bans=1
plan
  1[0,6)*
plan
  1[6,7)?^
commit
  1: 100
masks late
tail
  1 parked
free
  14 14
commit
masks ready
plan
  1[6,7)*
free
  14 15
)");
}

TEST_CASE("where the model has states a row is not planned before the changes of its next token are known") {
  check_script(R"(config pool=16 block=4 states=2
add 1 prompt=6 max=9 bans=1
add 2 prompt=4 max=9
plan
  1[0,6)* 2[0,4)*
plan
  2[4,5)?*
commit
  1: 100
  2: 100
plan
  1[6,7)* 2[5,6)?*
commit
  2: 101
masks late
plan
  2[6,7)?*
commit
  1: 101
  2: 102
plan
  2[7,8)?*
masks ready
commit
  2: 103
plan
  1[7,8)* 2[8,9)?*
)");
}
