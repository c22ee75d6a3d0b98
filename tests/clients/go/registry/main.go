// Command registry acts on a schema registry with franz-go's sr, and prints what it sees as JSON.
//
//	registry exchange URL
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"ottla.dev/tests/clients/program"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	address = `{"type":"record","name":"Address","fields":[{"name":"city","type":"string"}]}`
	order   = `{"type":"record","name":"Order","fields":[{"name":"to","type":"Address"}]}`
	broken  = `{"type":"record","name":"Address","fields":[{"name":"city","type":"int"}]}`
)

type Order struct {
	To map[string]string `json:"to"`
}

func main() {
	ctx := context.Background()
	client, err := sr.NewClient(sr.URLs(os.Args[2]))
	program.Must(err)
	switch os.Args[1] {
	case "exchange":
		exchange(ctx, client)
	}
}

// exchange registers two schemas, encodes and decodes a value in the registry's framing, and is refused an incompatible one.
func exchange(ctx context.Context, client *sr.Client) {
	for _, each := range client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, "address") {
		program.Must(each.Err)
		program.Print(map[string]any{"subject": each.Subject, "level": each.Level.String()})
	}
	first, err := client.CreateSchema(ctx, "address", sr.Schema{Schema: address})
	program.Must(err)
	reference := sr.SchemaReference{Name: "Address", Subject: "address", Version: first.Version}
	second, err := client.CreateSchema(ctx, "orders-value", sr.Schema{Schema: order, References: []sr.SchemaReference{reference}})
	program.Must(err)
	for _, each := range []sr.SubjectSchema{first, second} {
		program.Print(map[string]any{"subject": each.Subject, "id": each.ID, "version": each.Version})
	}

	var serde sr.Serde
	serde.Register(second.ID, Order{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	framed, err := serde.Encode(Order{To: map[string]string{"city": "Newark"}})
	program.Must(err)
	var decoded Order
	program.Must(serde.Decode(framed, &decoded))
	program.Print(map[string]any{"frame": framed[:5], "city": decoded.To["city"]})

	found, err := client.LookupSchema(ctx, "orders-value", second.Schema)
	program.Must(err)
	byID, err := client.SchemaByID(ctx, second.ID)
	program.Must(err)
	users, err := client.SchemaReferences(ctx, "address", first.Version)
	program.Must(err)
	program.Print(map[string]any{"found": found.ID, "references": len(byID.References), "used by": users[0].ID})

	_, err = client.CreateSchema(ctx, "address", sr.Schema{Schema: broken})
	var refused *sr.ResponseError
	if !errors.As(err, &refused) {
		program.Must(errors.New("an incompatible schema was registered"))
	}
	program.Print(map[string]any{"refused": refused.ErrorCode})
	check, err := client.CheckCompatibility(ctx, "address", -1, sr.Schema{Schema: broken})
	program.Must(err)
	program.Print(map[string]any{"compatible": check.Is, "messages": len(check.Messages)})

	deleted, err := client.DeleteSubject(ctx, "orders-value", sr.SoftDelete)
	program.Must(err)
	_, err = client.DeleteSubject(ctx, "orders-value", sr.HardDelete)
	program.Must(err)
	subjects, err := client.Subjects(ctx)
	program.Must(err)
	program.Print(map[string]any{"deleted": deleted, "subjects": subjects})
}
