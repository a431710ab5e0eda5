package topic

import (
	"github.com/pgsvi/pgsvi/internal/dense"
)

// moments are Σ_n 1, Σ_n m_n and Σ_n V_n + m_n m_nᵀ.
type moments struct {
	count float64
	m, v  []float64 // v is K×K, its lower triangle significant
}

func (s *moments) reset(k int) {
	s.count, s.m, s.v = 0, dense.Resize(s.m, k), dense.Resize(s.v, k*k)
	clear(s.m)
	clear(s.v)
}

// add adds weight times the moments of q.
func (s *moments) add(weight float64, w *work) {
	w.invert()
	s.count += weight
	for i, m := range w.m {
		s.m[i] += weight * m
		for j, o := range w.m[:i+1] {
			s.v[i*w.k+j] += weight * (w.cov(i, j) + m*o)
		}
	}
}

// addScaled adds weight times o.
func (s *moments) addScaled(weight float64, o *moments) {
	s.count += weight * o.count
	for i, x := range o.m {
		s.m[i] += weight * x
	}
	for i, x := range o.v {
		s.v[i] += weight * x
	}
}

// prior stores in p the N(μ, Σ) that maximizes the ELBO of the documents in s and of pseudo
// imagined documents with q = N(0, I). It reports false if rounding makes Σ invalid.
func (s *moments) prior(p *normal, pseudo float64, scratch *[]float64) bool {
	k := len(s.m)
	n := s.count + pseudo
	*scratch = dense.Resize(*scratch, k+2*k*k)
	mu, cov, rest := (*scratch)[:k], (*scratch)[k:k+k*k], (*scratch)[k+k*k:]
	for i, m := range s.m {
		mu[i] = m / n
		for j := range i + 1 {
			cov[i*k+j] = s.v[i*k+j]/n - mu[i]*mu[j]
		}
		cov[i*k+i] += pseudo / n
	}
	return p.set(mu, cov, &rest)
}

// stats are the sufficient statistics S of the topics, with β_kv ∝ S_kv + smoothing.
type stats struct {
	k, terms int
	smooth   float64
	scale    float64   // S is scale·stat
	stat     []float64 // terms × K, so that the K numbers of a word are adjacent
	sum      []float64 // Σ_v stat
	inv      []float64 // 1 / Σ_v (S + smoothing)
}

// set makes S total times the topics given as K rows of non-negative numbers.
func (t *stats) set(rows [][]float64, total float64) {
	t.k = len(rows)
	t.scale = 1
	t.stat, t.sum, t.inv = make([]float64, t.terms*t.k), make([]float64, t.k), make([]float64, t.k)
	for k, row := range rows {
		var sum float64
		for _, x := range row {
			sum += x
		}
		for v, x := range row {
			t.stat[v*t.k+k] = x / sum * total
		}
		t.sum[k] = total
	}
	t.normalise()
}

func (t *stats) normalise() {
	for k, s := range t.sum {
		t.inv[k] = 1 / (t.scale*s + t.smooth*float64(t.terms))
	}
}

// gather stores the β of the words in b, word by word.
func (t *stats) gather(b []float64, words []int) {
	for i, v := range words {
		row := b[i*t.k : (i+1)*t.k]
		for k, x := range t.stat[v*t.k : (v+1)*t.k] {
			row[k] = (t.scale*x + t.smooth) * t.inv[k]
		}
	}
}

// decay multiplies S by 1 − rho.
func (t *stats) decay(rho float64) {
	t.scale *= 1 - rho
	if t.scale < 1e-100 {
		for i := range t.stat {
			t.stat[i] *= t.scale
		}
		for k := range t.sum {
			t.sum[k] *= t.scale
		}
		t.scale = 1
	}
}

// add adds weight times the statistics of a document, word by word.
func (t *stats) add(weight float64, stat []float64, words []int) {
	weight /= t.scale
	for i, v := range words {
		row := t.stat[v*t.k : (v+1)*t.k]
		for k, x := range stat[i*t.k : (i+1)*t.k] {
			x *= weight
			row[k] += x
			t.sum[k] += x
		}
	}
}

// beta returns β, terms × K.
func (t *stats) beta() []float64 {
	b := make([]float64, len(t.stat))
	for i, x := range t.stat {
		b[i] = (t.scale*x + t.smooth) * t.inv[i%t.k]
	}
	return b
}
