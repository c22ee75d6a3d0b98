// Package program has what the programs of the tests have in common: numbers among their arguments, a line of JSON for what they tell, an end at the first error.
package program

import (
	"encoding/json"
	"log"
	"os"
	"strconv"
)

func Number(text string) int {
	value, err := strconv.Atoi(text)
	Must(err)
	return value
}

func Tell(what map[string]any) { Must(json.NewEncoder(os.Stdout).Encode(what)) }

func Must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
