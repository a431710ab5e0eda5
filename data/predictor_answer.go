package data

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/pgsvi/pgsvi"
)

// An Answer is the prediction for a row, with its interval.
type Answer struct {
	// Label is the label whose probability is Mean: the most probable one of classes and ordered
	// levels. It is "" for numbers.
	Label string
	// Probs are the probabilities of Predictor.Classes; nil for two labels and for numbers.
	Probs []float64
	// Mean is the probability of Label or of a success, or the mean of the outcome, in its unit if
	// the model is of its logarithm or its square root.
	Mean float64
	// MeanLo and MeanHi are the ends of the credible interval of Mean. Its probability is 90%, or
	// the level that the caller gives.
	MeanLo, MeanHi float64
	// Lo and Hi are the ends of the prediction interval of a new outcome, if that is a number. For
	// probabilities they are MeanLo and MeanHi.
	Lo, Hi float64
	// Notes name values of the row that are imputed, new or beyond the training data.
	Notes []string
	// Row is the number of the row in its table, from 0, and Line that in its file, from 1. They
	// are 0 where there is no table.
	Row, Line int
	// Outcome is the outcome of the row, as in Data.Y, or the share of successes in trials, and
	// LogProb the log of its predictive probability or density, in nats: of trials that of one, or
	// of BetaBinomial that of the number of successes. They are NaN if the row has no outcome, or
	// one that cannot be used, which Notes say.
	Outcome, LogProb float64

	latent latent
	trials float64 // the number of trials, or 0 if the outcome is no share of successes
	unread error   // why the outcome cannot be used
}

// noAnswer returns the answer without numbers.
func noAnswer() *Answer {
	nan := math.NaN()
	return &Answer{Mean: nan, MeanLo: nan, MeanHi: nan, Lo: nan, Hi: nan, Outcome: nan, LogProb: nan}
}

// latent is the latent value of a row, N(mean, variance), and the likelihood.
type latent struct {
	lik            pgsvi.Likelihood
	mean, variance float64
	scores         []float64 // for classes: the means, and then the variances
}

// String returns the answer as "0.50 (0.11 to 0.89)", of classes "setosa: 0.93 (0.85 to 0.98)",
// with the notes behind. It is "no answer" for that of a row with an error.
func (a *Answer) String() string {
	s := fmt.Sprintf("%.3g (%.3g to %.3g)", a.Mean, a.Lo, a.Hi)
	switch {
	case math.IsNaN(a.Mean):
		s = "no answer"
	case a.Probs != nil:
		s = fmt.Sprintf("%s: %.2f (%.2f to %.2f)", a.Label, a.Mean, a.Lo, a.Hi)
	case a.Label != "":
		s = fmt.Sprintf("%.2f (%.2f to %.2f)", a.Mean, a.Lo, a.Hi)
	}
	if len(a.Notes) > 0 {
		s += "  " + strings.Join(a.Notes, "; ")
	}
	return s
}

// Survival returns the probability that a duration is longer than t, which is above 0: that the
// event has not happened by then (survival function). It is NaN if the likelihood is not one of
// durations that may be censored, such as Weibull or LogNormal.
func (a *Answer) Survival(t float64) float64 {
	known, ok := a.latent.lik.(pgsvi.Factual)
	if !ok || !known.Facts().Censored || !(t > 0) {
		return math.NaN()
	}
	at := pgsvi.NewPrediction(a.latent.lik, []float64{a.latent.mean}, []float64{a.latent.variance})
	return math.Exp(at.LogProb(nil, []float64{-t})[0])
}

// square turns the answer about the square root of the outcome into the answer about the outcome.
// variance is the predictive variance of the root, and noise the variance given its mean.
func (a *Answer) square(variance, noise float64) {
	a.Mean = a.Mean*a.Mean + variance
	for _, end := range []*float64{&a.Lo, &a.Hi, &a.MeanLo, &a.MeanHi} {
		*end = max(*end, 0) * max(*end, 0)
	}
	a.MeanLo += noise
	a.MeanHi += noise
}

// answerJSON is an Answer as JSON. Numbers that are not known are left out.
type answerJSON struct {
	Label   string    `json:"label,omitempty"`
	Probs   []float64 `json:"probs,omitempty"`
	Mean    *float64  `json:"mean,omitempty"`
	MeanLo  *float64  `json:"mean_lo,omitempty"`
	MeanHi  *float64  `json:"mean_hi,omitempty"`
	Lo      *float64  `json:"lo,omitempty"`
	Hi      *float64  `json:"hi,omitempty"`
	Notes   []string  `json:"notes,omitempty"`
	Row     int       `json:"row"`
	Line    int       `json:"line,omitempty"`
	Outcome *float64  `json:"outcome,omitempty"`
	LogProb *float64  `json:"log_prob,omitempty"`
}

// MarshalJSON returns the answer as an object such as {"label": "yes", "mean": 0.7, "mean_lo": 0.5,
// "mean_hi": 0.8, "lo": 0.5, "hi": 0.8, "row": 0}. It leaves out what is not known, such as the
// outcome of a new row, and what is infinite.
func (a *Answer) MarshalJSON() ([]byte, error) {
	number := func(v float64) *float64 {
		if math.IsNaN(v - v) {
			return nil
		}
		return &v
	}
	return json.Marshal(answerJSON{a.Label, a.Probs, number(a.Mean), number(a.MeanLo),
		number(a.MeanHi), number(a.Lo), number(a.Hi), a.Notes, a.Row, a.Line, number(a.Outcome),
		number(a.LogProb)})
}

// UnmarshalJSON reads what MarshalJSON has written. Numbers that are left out are NaN.
func (a *Answer) UnmarshalJSON(b []byte) error {
	var s answerJSON
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("pgsvi: reading an answer: %w", err)
	}
	number := func(v *float64) float64 {
		if v == nil {
			return math.NaN()
		}
		return *v
	}
	*a = Answer{Label: s.Label, Probs: s.Probs, Mean: number(s.Mean), MeanLo: number(s.MeanLo),
		MeanHi: number(s.MeanHi), Lo: number(s.Lo), Hi: number(s.Hi), Notes: s.Notes, Row: s.Row,
		Line: s.Line, Outcome: number(s.Outcome), LogProb: number(s.LogProb)}
	return nil
}
