// Candidates of Go's concurrency.Election, etcd's own.
//
//	candidate ENDPOINTS ELECTION NAME TTL [NUMBER [ELECTIONS CLUSTERS START_MS]]
//
// ENDPOINTS is a comma list.  Each candidate has a client of its own, as an instance has.
// ELECTIONS, CLUSTERS and START_MS are as for candidates.c, and so are the lines that it
// writes and SIGUSR1 and SIGUSR2; a leader that has resigned campaigns again 50 ms later.  A
// session that has ended is replaced.  With CA_FILE in the environment, etcd's certificate must be
// of that authority.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/ioutil"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

var (
	one  = make(chan os.Signal, 1)
	mu   sync.Mutex
	many = make(chan struct{})
)

// Is closed when all that lead now are to resign.
func all() <-chan struct{} {
	mu.Lock()
	defer mu.Unlock()
	return many
}

func say(what string) {
	fmt.Printf("%s %.6f\n", what, float64(time.Now().UnixNano())/1e9)
}

// Campaigns, and leads until the session ends or the leader is to resign.
func lead(ctx context.Context, session *concurrency.Session, election, name string, ttl int) error {
	e := concurrency.NewElection(session, election)
	if err := e.Campaign(ctx, name); err != nil {
		return err
	}
	say("elected")
	select {
	case <-one:
	case <-all():
	case <-ctx.Done():
		say("unelected")
		return ctx.Err()
	}
	say("unelected")
	// Without a deadline it waits for 7 s when etcd loses its leader: etcd's own limit for a
	// request.  And Resign forgets the key when it fails.
	key, rev := e.Key(), e.Rev()
	for {
		short, cancel := context.WithTimeout(ctx, time.Duration(ttl)*time.Second/9)
		err := e.Resign(short)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		e = concurrency.ResumeElection(session, election, key, rev)
	}
	time.Sleep(50 * time.Millisecond)
	return nil
}

// Takes part in the elections until one of them fails.
func takePart(session *concurrency.Session, elections []string, name string, ttl int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for _, election := range elections {
		wg.Add(1)
		go func(election string) {
			defer wg.Done()
			defer cancel()
			for {
				if err := lead(ctx, session, election, name, ttl); err != nil {
					return
				}
			}
		}(election)
	}
	select {
	case <-session.Done():
	case <-ctx.Done():
	}
	cancel()
	wg.Wait()
}

func candidate(config clientv3.Config, elections []string, name string, ttl int) {
	client, err := clientv3.New(config)
	if err != nil {
		panic(err)
	}
	for {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
		if err != nil {
			fmt.Println("error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		takePart(session, elections, name, ttl)
		// its lease may live on: whoever campaigns again must not meet itself
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		client.Revoke(ctx, session.Lease())
		cancel()
		session.Orphan()
	}
}

func tlsConfig() *tls.Config {
	file := os.Getenv("CA_FILE")
	if file == "" {
		return nil
	}
	pem, err := ioutil.ReadFile(file)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: roots}
}

func argument(i, otherwise int) int {
	if len(os.Args) <= i {
		return otherwise
	}
	number, err := strconv.Atoi(os.Args[i])
	if err != nil {
		panic(err)
	}
	return number
}

func main() {
	ttl, number, elections, clusters, startMs := argument(4, 0), argument(5, 1), argument(6, 0), argument(7, 1), argument(8, 0)
	config := clientv3.Config{Endpoints: strings.Split(os.Args[1], ","), DialTimeout: 2 * time.Second, TLS: tlsConfig()}
	signal.Notify(one, syscall.SIGUSR1)
	resign := make(chan os.Signal, 1)
	signal.Notify(resign, syscall.SIGUSR2)
	for i := 0; i < number; i++ {
		names := []string{os.Args[2]}
		if elections > 0 {
			names = nil
			for k := 0; k < elections; k++ {
				names = append(names, fmt.Sprintf("%s/%d", os.Args[2], i%clusters*elections+k))
			}
		}
		go candidate(config, names, fmt.Sprintf("%s-%d", os.Args[3], i), ttl)
		time.Sleep(time.Duration(startMs) * time.Millisecond / time.Duration(number))
	}
	for range resign {
		mu.Lock()
		close(many)
		many = make(chan struct{})
		mu.Unlock()
	}
}
