// Package data reads what models of pgsvi take in, and predicts from what they have learned.
//
// # Tables
//
// ReadFile reads a table in any dialect of CSV, or JSON objects, one a line, and finds out how it
// is written and what each column looks like. Print the Table to see that. Some columns need a
// decision that nobody but you can make: whether "k.A." means a missing value, whether 05/08/2018
// is in May, which label is +1. Table.Suggest prints the calls that decide, to paste and read:
//
//	t, err := data.ReadFile("churn.csv")
//	fmt.Print(t)                    // the separator, the decimal sign, the columns
//	fmt.Print(t.Suggest("churned")) // what has to be decided, as Go
//	enc, err := t.Encoder(
//		data.Outcome("churned").Positive("yes"),
//		data.Category("plan").FoldCase().New(),
//		data.Number("age").MissingAre("unknown").Impute())
//	fmt.Print(enc)                  // what each column was taken for, and doubts
//	d, err := enc.Data(t)           // X, Y, offsets, weights and names, for pgsvi.NewGLM
//	row, err := enc.Row(map[string]any{"plan": "basic", "age": 44})
//
// Columns that are not named are taken for what they look like, if that leaves no question open.
// Table.Model takes a formula too, and gives a model and a Predictor that goes to a file.
//
// # Other files
//
// ReadCSV reads numbers alone. ReadLIBSVM and ScanLIBSVM read sparse rows, and OpenRows reads
// binary files of rows that are larger than memory. ReadCorpus and CorpusBuilder read text for
// topic models.
package data
