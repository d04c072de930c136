// Candidates of Go's concurrency.Election, etcd's own.
//
//	candidate ENDPOINT ELECTION NAME TTL [NUMBER]
//
// Writes a line for each event.  SIGUSR1: the one that leads resigns, and
// campaigns again 50 ms later.  A session that has ended is replaced.  With
// CA_FILE in the environment, etcd's certificate must be of that authority.
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
	"syscall"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

func lead(session *concurrency.Session, election, name string, resign <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-session.Done()
		cancel()
	}()
	e := concurrency.NewElection(session, election)
	if err := e.Campaign(ctx, name); err != nil {
		return err
	}
	fmt.Println("elected", name)
	select {
	case <-resign:
		if err := e.Resign(ctx); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	case <-session.Done():
		fmt.Println("unelected", name)
	}
	return nil
}

func campaign(client *clientv3.Client, election, name string, ttl int, resign <-chan os.Signal) {
	for {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
		if err != nil {
			fmt.Println("error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for {
			if err = lead(session, election, name, resign); err != nil {
				fmt.Println("error", err)
			}
			select {
			case <-session.Done():
			default:
				if err == nil {
					continue
				}
			}
			break
		}
		// its lease may live on: whoever campaigns again must not meet itself
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		client.Revoke(ctx, session.Lease())
		cancel()
		session.Orphan()
	}
}

// One after the other: a thousand at once would be another test.
const pause = 2 * time.Millisecond

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

func main() {
	ttl, err := strconv.Atoi(os.Args[4])
	if err != nil {
		panic(err)
	}
	number := 1
	if len(os.Args) > 5 {
		if number, err = strconv.Atoi(os.Args[5]); err != nil {
			panic(err)
		}
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: 2 * time.Second, TLS: tlsConfig()})
	if err != nil {
		panic(err)
	}
	resign := make(chan os.Signal, 1)
	signal.Notify(resign, syscall.SIGUSR1)
	for i := 0; i < number; i++ {
		go campaign(client, os.Args[2], fmt.Sprintf("%s-%d", os.Args[3], i), ttl, resign)
		time.Sleep(pause)
	}
	select {}
}
