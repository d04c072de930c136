// A candidate of npm's etcd-leader, as its README uses it.
//
//   node candidate.js HOST:PORT KEY NAME TTL [NUMBER]
//
// Writes a line for each event.  SIGUSR1: the one that leads does stop(), and
// start() again 50 ms later.  The README has no listener for errors, with which
// a process ends at the first one; this one starts again.
"use strict";

const fs = require("fs");
const Etcd = require("node-etcd");
const Client = require("node-etcd/lib/client");
const etcdLeader = require("etcd-leader");
const [endpoint, key, name, ttl, number] = process.argv.slice(2);

const say = (line) => fs.writeSync(1, line + "\n");
const candidates = [];

function start() {
	const election = etcdLeader(new Etcd([endpoint]), key, name + "-" + candidates.length, ttl).start();
	candidates.push(election);
	election.on("elected", () => say("elected"));
	election.on("unelected", () => say("unelected"));
	election.on("error", (error) => {
		say("error " + error.message);
		setTimeout(() => election.start(), 500);
	});
	// one after the other: a thousand at once would be another test
	if (candidates.length < (number || 1))
		setTimeout(start, 2);
}

// node-etcd has 100 connections for a process, and each candidate keeps one
const execute = Client.prototype.execute;
const pool = { maxSockets: Infinity };
Client.prototype.execute = function (method, options, callback) {
	return execute.call(this, method, { ...options, pool }, callback);
};

start();
process.on("SIGUSR1", () => {
	const election = candidates.find((candidate) => candidate.isLeader());
	if (election) {
		election.stop();
		setTimeout(() => election.start(), 50);
	}
});
