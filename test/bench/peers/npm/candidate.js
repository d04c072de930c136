// A candidate of npm's etcd-leader, as its README uses it.
//
//   node candidate.js HOST:PORT KEY NAME TTL
//
// Writes a line for each event.  SIGUSR1: stop(), and start() again 50 ms
// later.  The README has no listener for errors, with which a process ends at
// the first one; this one starts again.
"use strict";

const fs = require("fs");
const Etcd = require("node-etcd");
const etcdLeader = require("etcd-leader");
const [endpoint, key, name, ttl] = process.argv.slice(2);

const say = (line) => fs.writeSync(1, line + "\n");
const election = etcdLeader(new Etcd([endpoint]), key, name, ttl).start();

election.on("elected", () => say("elected"));
election.on("unelected", () => say("unelected"));
election.on("error", (error) => {
	say("error " + error.message);
	setTimeout(() => election.start(), 500);
});
process.on("SIGUSR1", () => {
	election.stop();
	setTimeout(() => election.start(), 50);
});
