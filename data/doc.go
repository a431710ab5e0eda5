// Package data reads tables, sparse rows and documents for the models of package pgsvi. It fits
// formulas to tables, and predicts new rows with a model from a single file.
//
// # Tables
//
// ReadFile reads a table in any dialect of CSV, or JSON objects. It detects the separator, the
// decimal sign, the encoding and the kind of each column; print the Table to see them. Some columns
// need a decision. For example, does "k.A." mean a missing value, is 05/08/2018 in May, is -999 a
// number, and which of A and B is +1? Table.Suggest prints the calls that make the decisions, for
// you to review and paste:
//
//	t, err := data.ReadFile("churn.csv")
//	fmt.Print(t)                    // the separator, the decimal sign, the columns
//	fmt.Print(t.Suggest("churned")) // the decisions, as Go
//	m, err := t.Model("churned ~ plan + s(age) + (1 | region)",
//		data.Outcome("churned").Positive("yes"),
//		data.Category("plan").FoldCase().New(),
//		data.Number("age").MissingAre("unknown").Impute())
//	fmt.Print(m)                    // how each column was read, doubts, the model in words
//	glm, err := m.GLM(nil, nil)     // or m.FitGP
//	post, res, err := glm.Fit(ctx, nil)
//	p, err := m.Predictor(post)     // p.SaveFile writes everything that predictions need
//	a, err := p.Predict(map[string]any{"plan": "basic", "age": 44, "region": "north"})
//
// A column that can be read in only one way needs no call. If other columns need a decision, a
// single DecisionError lists every decision with the calls that make it. Table.Encoder returns the
// matrices without a formula.
//
// Some numbers need a decision, because they may not be what they look like:
//
//	20181231, 201812        Date("day").Layout("20060102"), or Number("day")
//	830, 1745               Number("at").Clock() for times of day, or Number("at")
//	-999 among small ones   Number("x").MissingAre("-999"), or Number("x").NotMissing("-999")
//	5 kg, 7 kg              Number("weight").Unit("kg"), or Category("weight")
//	1, 2, 3 as a status     Category("status"), or Number("status")
//
// Table.Split holds out random rows, and Predictor.Score compares the predictions with their
// outcomes.
//
// If a table is read wrongly, describe it with a Format. A Format also ignores lines that are not
// rows: Skip ignores lines above the names, SkipLast ignores lines at the end, and Comment ignores
// lines that begin with a given character.
//
// # Other files
//
// ReadCSV reads a table of numbers. ReadLIBSVM and ScanLIBSVM read sparse rows, and OpenRows reads
// binary files of rows that are larger than memory. ReadCorpus and CorpusBuilder read text for
// topic models.
package data
