// node test/all.mjs: the tests of all parts that do no I/O, in one process.

import "./channel.test.mjs";
import "./keys.test.mjs";
import "./values.test.mjs";
