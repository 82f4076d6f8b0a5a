// Command kfake is a second kind of broker for tests: franz-go's kfake, with one broker on the port
// of the loopback that is given, until SIGTERM. SIGUSR1: for each transactional id, the next end of
// a transaction is done, and not answered. SIGUSR2: it is not answered either, and is done late:
// after the records of the id's next transaction, before its end. Standard output says so.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// broker spoils ends of transactions. Its functions run one after the other, but for what sleeps.
type broker struct {
	*kfake.Cluster
	signals atomic.Int32                   // how many came; the last one is of this kind
	late    atomic.Bool                    // SIGUSR2
	copying atomic.Bool                    // whether the broker itself sends an end
	heeded  map[string]int32               // by id, how many signals have had their effect
	pending map[string]*kmsg.EndTxnRequest // by id, the end that is still to come
	begun   map[string]bool                // the ids whose next transaction has begun
}

func (b *broker) end(request kmsg.Request) (kmsg.Response, error, bool) {
	b.KeepControl()
	end := request.(*kmsg.EndTxnRequest)
	id, signals := end.TransactionalID, b.signals.Load()
	switch {
	case b.copying.Load():
		return nil, nil, false
	case b.heeded[id] == signals:
		return b.arrive(id)
	}
	b.heeded[id] = signals
	if b.late.Load() {
		b.pending[id], b.begun[id] = end, false
		fmt.Println("delayed", id)
	} else {
		b.do("lost", end)
	}
	return nil, nil, true
}

func (b *broker) records(request kmsg.Request) (kmsg.Response, error, bool) {
	if id := request.(*kmsg.ProduceRequest).TransactionID; id != nil {
		b.begun[*id] = true
	}
	return nil, nil, false
}

func (b *broker) offsets(request kmsg.Request) (kmsg.Response, error, bool) {
	id := request.(*kmsg.AddOffsetsToTxnRequest).TransactionalID
	defer func() { b.begun[id] = true }() // a transaction may have offsets only
	return b.arrive(id)
}

// arrive does the late end of an id, if the next transaction has begun.
func (b *broker) arrive(id string) (kmsg.Response, error, bool) {
	if late := b.pending[id]; late != nil && b.begun[id] {
		delete(b.pending, id)
		b.do("late", late)
	}
	return nil, nil, false
}

// do sends an end once more, on a connection of its own, and waits for the answer.
func (b *broker) do(how string, end *kmsg.EndTxnRequest) {
	b.copying.Store(true)
	b.SleepControl(func() {
		defer b.copying.Store(false)
		answer := end.ResponseKind().(*kmsg.EndTxnResponse)
		if err := ask(b.ListenAddrs()[0], end, answer); err != nil {
			log.Fatal(err)
		}
		fmt.Println(how, end.TransactionalID, answer.ErrorCode)
	})
}

func ask(address string, request kmsg.Request, answer kmsg.Response) error {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	if _, err := connection.Write(kmsg.NewRequestFormatter().AppendRequest(nil, request, 1)); err != nil {
		return err
	}
	header := 4 // the correlation id, and tags
	if answer.IsFlexible() {
		header++
	}
	var size int32
	if err := binary.Read(connection, binary.BigEndian, &size); err != nil {
		return err
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(connection, body); err != nil {
		return err
	}
	return answer.ReadFrom(body[header:])
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: kfake PORT")
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	b := &broker{
		Cluster: cluster, heeded: map[string]int32{}, begun: map[string]bool{},
		pending: map[string]*kmsg.EndTxnRequest{},
	}
	cluster.ControlKey(int16(kmsg.EndTxn), b.end)
	cluster.ControlKey(int16(kmsg.Produce), b.records)
	cluster.ControlKey(int16(kmsg.AddOffsetsToTxn), b.offsets)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGUSR1, syscall.SIGUSR2)
	for got := range signals {
		if got != syscall.SIGUSR1 && got != syscall.SIGUSR2 {
			return
		}
		b.late.Store(got == syscall.SIGUSR2)
		b.signals.Add(1)
	}
}
