package data_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

// churn is a table as it comes from a spreadsheet.
const churn = `Kunde;Beginn;Tarif;Preis;Alter;gekündigt
K-100;17.01.2022;Basis;19,90 €;32;nein
K-107;05.03.2021;Komfort;29,90 €;k.A.;nein
K-114;28.11.2020;premium;49,90 €;51;ja
K-121;02.06.2022;Basis;21,90 €;44;ja
K-128;19.09.2021;Basis;19,90 €;27;nein
K-135;30.04.2020;Premium;52,90 €;68;ja
K-142;11.12.2021;Komfort;31,90 €;39;nein
K-149;23.07.2020;Basis;24,90 €;;nein
K-156;08.02.2022;Komfort;29,90 €;58;ja
K-163;14.05.2021;Basis;22,90 €;36;nein
K-170;14.05.2021;Basis;22,90 €;41;nein
`

// Read detects how a file is written. Suggest lists the columns that need a decision.
func ExampleRead() {
	t, err := data.Read(strings.NewReader(churn), "churn.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(t)
	fmt.Println()
	fmt.Print(t.Suggest("gekündigt"))
	// Output:
	// churn.csv: 11 rows, 6 columns
	// UTF-8, separator ';', decimal sign ',' (line 2 has "19,90 €")
	//
	// column     looks like  because                        missing  for example
	// Kunde      identifier  11 different texts in 11 rows  -        "K-100", "K-107"
	// Beginn     date        dates                          -        "17.01.2022", "05.03.2021"
	// Tarif      category    texts                          -        "Basis", "Komfort"
	// Preis      number      numbers                        -        "19,90 €", "29,90 €"
	// Alter      number      numbers                        1        "32", "k.A."
	// gekündigt  category    texts                          -        "nein", "ja"
	//
	// columns that need a decision: "Kunde", "Tarif", "Alter"
	//
	// 	data.Outcome("gekündigt").Positive("ja"),
	// 	// "Kunde": an identifier: 11 different texts in 11 rows
	// 	data.Skip("Kunde"),
	// 	// or data.Group("Kunde"), // for a random effect of each text
	// 	// or data.Category("Kunde"), // for a feature of each text
	// 	// "Tarif": levels that differ only in case, "Premium" and "premium"
	// 	data.Category("Tarif").FoldCase(),
	// 	// or data.Category("Tarif").KeepCase(), // to keep them apart
	// 	// "Alter": 9 numbers, but also "k.A." (1); 2 of 11 values are missing ("" (1), "k.A." (1)), the first in line 3
	// 	data.Number("Alter").MissingAre("k.A.").Impute(), // if that means missing
	// 	// or data.Category("Alter").Level(), // if not
	// 	// or data.Number("Alter").MissingAre("k.A.").Drop(), // to leave these rows out
}

// An Encoder learns the columns, and turns rows of the table and rows to predict into numbers.
func ExampleTable_Encoder() {
	t, err := data.Read(strings.NewReader(churn), "churn.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	enc, err := t.Encoder(
		data.Outcome("gekündigt").Positive("ja"),
		data.Category("Tarif").FoldCase().Reference("basis").New(),
		data.Number("Alter").MissingAre("k.A.").Impute(),
		data.Skip("Kunde"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(enc)
	d, err := enc.Data(t)
	if err != nil {
		fmt.Println(err)
		return
	}
	rows, cols := d.X.Dims()
	fmt.Println()
	fmt.Printf("%d×%d %q\n", rows, cols, d.Names)
	fmt.Printf("%.2f of %q\n", d.Y, d.Labels)
	fmt.Printf("%.2f\n", mat.Row(nil, 1, d.X))
	// Output:
	// churn.csv: 11 rows, 11 kept, 7 features
	// UTF-8, separator ';', decimal sign ',' (line 2 has "19,90 €")
	//
	// column     read as                                      why       features  missing                unknown
	// Kunde      not used                                     declared  -         -                      -
	// Beginn     date, written as 2.1.2006: elapsed in years  dates     1         -                      -
	// Tarif      category of 3 levels, reference "basis"      declared  3         -                      new
	// Preis      number, 29.7 ± 11.0 €                        numbers   1         -                      -
	// Alter      number, 44.0 ± 12.3                          declared  2         2, mean and indicator  -
	// gekündigt  outcome, +1 = "ja" (36.4%)                   declared  -         -                      -
	//
	// doubts
	//   column "Tarif": 3 levels with fewer than 20 rows: "basis" (6), "komfort" (3), "premium" (2)
	//   column "gekündigt": 2 levels with fewer than 20 rows: "nein" (7), "ja" (4)
	//
	// 11×7 ["Beginn.elapsed" "Tarif=komfort" "Tarif=premium" "Tarif=(new)" "Preis" "Alter" "Alter missing"]
	// [-1.00 -1.00 1.00 1.00 -1.00 1.00 -1.00 -1.00 1.00 -1.00 -1.00] of ["nein" "ja"]
	// [-0.43 1.00 0.00 0.00 0.02 0.00 1.00]
}

// A single error holds every decision, so that a program can handle them.
func ExampleDecisionError() {
	t, err := data.Read(strings.NewReader(churn), "churn.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = t.Encoder(data.Outcome("gekündigt").Positive("ja"), data.Skip("Kunde"))
	fmt.Println(err)
	var undecided *data.DecisionError
	if errors.As(err, &undecided) {
		for _, d := range undecided.Decisions {
			fmt.Println(d.Column, len(d.Choices))
		}
	}
	// Output:
	// pgsvi: churn.csv: 2 columns need a decision
	//   column "Tarif": levels that differ only in case, "Premium" and "premium"; use Category("Tarif").FoldCase(), or Category("Tarif").KeepCase() to keep them apart
	//   column "Alter": 9 numbers, but also "k.A." (1); 2 of 11 values are missing ("" (1), "k.A." (1)), the first in line 3; use Number("Alter").MissingAre("k.A.").Impute() if that means missing, or Category("Alter").Level() if not, or Number("Alter").MissingAre("k.A.").Drop() to leave these rows out
	// Tarif 2
	// Alter 3
}

// A row may be a map, a JSON object, or a struct with tags. Notes describe unusual values.
func ExampleEncoder_Row() {
	t, err := data.Read(strings.NewReader(churn), "churn.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	enc, err := t.Encoder(
		data.Outcome("gekündigt").Positive("ja"),
		data.Category("Tarif").FoldCase().New(),
		data.Number("Alter").MissingAre("k.A.").Impute(),
		data.Skip("Kunde"), data.Skip("Beginn"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%q\n", enc.Features())
	row, err := enc.Row(map[string]any{"Tarif": "Gold", "Preis": 25.5, "Alter": nil})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.2f %s\n", row.X, row.Notes)

	type customer struct {
		Plan  string  `col:"Tarif"`
		Price float64 `col:"Preis"`
		Age   *int    `col:"Alter"`
	}
	age := 44
	for _, r := range []any{customer{"Basis", 25.5, &age},
		[]byte(`{"Tarif": "basis", "Preis": 25.5, "Alter": 44}`)} {
		row, err := enc.Row(r)
		fmt.Printf("%.2f %v\n", row.X, err)
	}
	_, err = enc.Row([]byte(`{"Tarif": "Basis", "Price": 25.5}`))
	fmt.Println(err)

	file, err := json.Marshal(enc) // to predict in another program
	var saved data.Encoder
	if err == nil {
		err = json.Unmarshal(file, &saved)
	}
	fmt.Println(len(saved.Features()), err)
	// Output:
	// ["Tarif=komfort" "Tarif=premium" "Tarif=(new)" "Preis" "Alter" "Alter missing"]
	// [0.00 0.00 1.00 -0.39 0.00 1.00] ["Tarif"="gold" is new "Alter" is missing and replaced by the mean]
	// [0.00 0.00 0.00 -0.39 0.00 0.00] <nil>
	// [0.00 0.00 0.00 -0.39 0.00 0.00] <nil>
	// pgsvi: column "Preis": the value is missing, but no value was missing in training; use a number in €; the model has no column "Price"; it has "Tarif", "Preis", "Alter"
	// 6 <nil>
}

// A row that cannot be encoded has an error of its own, and the other rows are encoded.
func ExampleEncoder_Rows() {
	t, err := data.Read(
		strings.NewReader(
			"size,kind,price\n20,flat,300\n55,flat,700\n90,house,1100\n70,house,950\n"),
		"rents.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	enc, err := t.Encoder(data.Outcome("price"), data.Category("kind").Reference("flat"),
		data.Raw())
	if err != nil {
		fmt.Println(err)
		return
	}
	more, err := data.Read(strings.NewReader("kind;size\nhouse;80\ncastle;900\nflat;30\n"),
		"more.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	for row, err := range enc.Rows(more) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(row.Row, row.X)
	}
	// Output:
	// 0 [80 1]
	// pgsvi: more.csv: line 3, column "kind": the level "castle" is unknown; use one of "flat", "house"
	// 2 [30 0]
}
