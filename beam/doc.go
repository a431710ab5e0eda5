// Package beam fits GLMs, sparse GPs and topic models to rows on many machines, by Apache Beam:
// on Prism, Dataflow, Flink or Spark.
//
//	post, res, err := beam.FitGLM(ctx, cols, pgsvi.BernoulliLogit{}, nil, &beam.Job{
//		Paths: []string{"gs://bucket/rows/part-*"},
//		Dir:   "gs://bucket/fit",
//		Run:   beamx.Run,
//	})
//
// It is a module of its own, so that the library does without Beam. Its programs are
// examples/beam, with the commands for each runner.
//
// # Rounds
//
// A fit is a few rounds of pgsvi.Rounds, each of which is one Beam job: the first takes a sample,
// and three or four more are enough for GLMs and sparse GPs. A job reads the state of the round,
// goes through all rows, and writes what they sum to; this process makes the next state of it, and
// ends when Job.Goal is reached. All of these are files in Job.Dir, which all machines must see.
// A job is one round: Beam has no loops, so that one job of several rounds could not end early, and
// would lose all of them where it fails.
//
// After each round a checkpoint is written. A fit whose process or workers were killed goes on
// with Job.Resume: it loses the round that was under way, and ends in the same bits.
//
// # Rows
//
// Rows are in part files. An element of Beam is some blocks of rows of a file, which its worker
// reads; no row ever is an element. The formats are, by what a file begins with and by its name:
//
//   - row files of data.RowWriter: binary, with checksums; any part of them can be read, so that
//     one file may be split. They are many times faster than text;
//   - Parquet (by its first bytes): columns of numbers, the last of which is the response;
//   - CSV (.csv, .csv.gz): as data.ReadCSV reads it, the response in the last column. Only the
//     first line of a file that is not blank may have names; another is an error, or skipped;
//   - other files are LIBSVM, and of documents lda-c.
//
// Text may be packed by gzip. A file of text, a Parquet file, and a row file that is not local is
// read from its beginning to its end by one worker: write many part files.
//
// # The same bits
//
// A block is Job.Block consecutive rows of a file. The result depends on the rows, the order of
// the files by name, and the blocks. It does not depend on shards, runners, machines or retries:
// the saved posterior has the same bytes, on one GOARCH.
package beam
