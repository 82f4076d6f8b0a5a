// Reports a round by HTTP, and waits for its ratings. It needs the standard library only.
//
// RATER_URL and RATER_TOKEN name the API of `stream-rater serve`, and its token for writing.
package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

type Entry struct {
	Player string `json:"player"`
	Rank   int    `json:"rank,omitempty"`
	DNF    bool   `json:"dnf,omitempty"`
}

type Round struct {
	RoundID     string    `json:"round_id"`
	CompletedAt time.Time `json:"completed_at"`
	Standings   []Entry   `json:"standings"`
}

type State struct {
	State   string `json:"state"`
	Changes []struct {
		Player         string  `json:"player"`
		Rating         float64 `json:"rating"`
		PreviousRating float64 `json:"previous_rating"`
	} `json:"changes"`
}

var (
	base   = cmp.Or(os.Getenv("RATER_URL"), "http://127.0.0.1:9109")
	client = http.Client{Timeout: 40 * time.Second}
)

// ask sends one request, and returns status, header and body.
func ask(method, path string, body []byte) (int, http.Header, []byte, error) {
	request, err := http.NewRequest(method, base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("RATER_TOKEN"))
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, text, err
}

// report sends a round until it is stored for good. The same RoundID counts once.
func report(ladder string, finished Round) error {
	body, err := json.Marshal(finished)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(time.Minute)
	for {
		status, header, text, err := ask("POST", "/v1/ladders/"+url.PathEscape(ladder)+"/rounds", body)
		wait := 1
		switch {
		case err == nil && status == http.StatusAccepted:
			return nil
		case err != nil: // no answer: it may be stored or not
		case status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests:
			if given, bad := strconv.Atoi(header.Get("Retry-After")); bad == nil {
				wait = given
			}
		default:
			return fmt.Errorf("refused: %s", text)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not stored: %d %s %v", status, text, err)
		}
		time.Sleep(time.Duration(wait) * time.Second)
	}
}

func main() {
	finished := Round{
		RoundID: rand.Text(), CompletedAt: time.Now().UTC(),
		Standings: []Entry{{Player: "ann", Rank: 1}, {Player: "bob", Rank: 2}},
	}
	if err := report("duel", finished); err != nil {
		log.Fatal(err)
	}
	state := State{State: "pending"}
	for state.State == "pending" {
		status, _, text, err := ask("GET", "/v1/ladders/duel/rounds/"+finished.RoundID+"?wait=30", nil)
		if err != nil || status != http.StatusOK {
			log.Fatalf("%d %s %v", status, text, err)
		}
		if err := json.Unmarshal(text, &state); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(state.State)
	for _, change := range state.Changes {
		fmt.Println(change.Player, change.PreviousRating, "->", change.Rating)
	}
}
