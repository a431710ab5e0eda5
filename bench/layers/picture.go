package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The picture of the packages is a layered drawing of a directed graph (Sugiyama, Tagawa and Toda,
// 1981). Each package is in a row above all packages that it imports, and as near to its users as
// that allows. A line from a package to an import is drawn only if no other import leads there
// (transitive reduction). Lines that cross several rows get an invisible node in each of them, and
// the order within the rows is that of the average positions of the neighbors.

// Sizes of the picture, in pixels.
const (
	boxWidth, boxHeight = 92, 26
	boxGap              = 18 // between two boxes of a row
	bendGap             = 14 // around a line that passes a row
	rowHeight           = 74
	margin              = 20
)

// A node is a package, or a bend of a line that passes the row.
type node struct {
	name     string // empty for a bend
	row      int    // 0 is the top
	x        float64
	up, down []*node
}

// picture returns the packages of the library and their imports as an SVG file.
func (m *module) picture() string {
	rows := layout(m.imports())
	for range 24 {
		order(rows, func(n *node) []*node { return n.up })
		slices.Reverse(rows)
		order(rows, func(n *node) []*node { return n.down })
		slices.Reverse(rows)
	}
	width := place(rows)
	height := float64(len(rows)-1)*rowHeight + boxHeight + 2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" `+
		`font-family="sans-serif" font-size="13">`+"\n", width, height)
	b.WriteString("<title>The packages of pgsvi; lines lead down to imports</title>\n")
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="#ffffff"/>`+"\n", width, height)
	for _, row := range rows {
		for _, n := range row {
			for _, d := range n.down {
				writeLine(&b, n, d)
			}
		}
	}
	for _, row := range rows {
		for _, n := range row {
			if n.name != "" {
				writeBox(&b, n)
			}
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// imports returns the imports of each package of the library within it, transitively reduced.
func (m *module) imports() map[string][]string {
	direct := make(map[string][]string)
	name := make(map[string]string)
	for _, p := range m.packages {
		if !strings.HasPrefix(p.folder, "bench") && !strings.HasPrefix(p.folder, "docs") &&
			len(p.files) > 0 && !slices.Contains(helpers, p.folder) {
			name[p.types.Path()] = strings.TrimPrefix(p.folder, "internal/")
		}
	}
	for _, p := range m.packages {
		from, ok := name[p.types.Path()]
		if !ok {
			continue
		}
		direct[from] = nil
		for _, q := range p.types.Imports() {
			if to, ok := name[q.Path()]; ok {
				direct[from] = append(direct[from], to)
			}
		}
	}
	return reduce(direct)
}

// reduce returns the imports to which no other import leads.
func reduce(direct map[string][]string) map[string][]string {
	reduced := make(map[string][]string)
	for from, all := range direct {
		reduced[from] = slices.DeleteFunc(slices.Clone(all), func(to string) bool {
			return slices.ContainsFunc(all, func(other string) bool {
				return other != to && leads(direct, other, to)
			})
		})
		slices.Sort(reduced[from])
	}
	return reduced
}

// helpers are packages for tests, which the picture leaves out.
var helpers = []string{"internal/testkit", "internal/trust", "internal/cputime"}

// leads reports whether imports lead from one package to another.
func leads(imports map[string][]string, from, to string) bool {
	return slices.ContainsFunc(imports[from], func(next string) bool {
		return next == to || leads(imports, next, to)
	})
}

// layout returns the nodes in rows, the packages that no other one imports first.
func layout(imports map[string][]string) [][]*node {
	names := slices.Sorted(maps.Keys(imports))
	users := make(map[string][]string)
	for _, from := range names {
		for _, to := range imports[from] {
			users[to] = append(users[to], from)
		}
	}
	rowOf := make(map[string]int)
	var find func(string) int
	find = func(name string) int {
		if r, ok := rowOf[name]; ok {
			return r
		}
		r := 0
		for _, u := range users[name] {
			r = max(r, find(u)+1)
		}
		rowOf[name] = r
		return r
	}
	last := 0
	for _, name := range names {
		last = max(last, find(name))
	}
	rows := make([][]*node, last+1)
	nodes := make(map[string]*node)
	for _, name := range names {
		n := &node{name: name, row: rowOf[name]}
		nodes[name] = n
		rows[n.row] = append(rows[n.row], n)
	}
	for _, name := range names {
		for _, to := range imports[name] {
			from := nodes[name]
			for r := from.row + 1; r < rowOf[to]; r++ {
				bend := &node{row: r}
				rows[r] = append(rows[r], bend)
				connect(from, bend)
				from = bend
			}
			connect(from, nodes[to])
		}
	}
	return rows
}

func connect(upper, lower *node) {
	upper.down = append(upper.down, lower)
	lower.up = append(lower.up, upper)
}

// order sorts each row by the mean index of the neighbors that next returns. Nodes without such
// neighbors keep their index.
func order(rows [][]*node, next func(*node) []*node) {
	index := make(map[*node]float64)
	for _, row := range rows {
		key := make(map[*node]float64)
		for i, n := range row {
			key[n] = float64(i) / float64(len(row))
			if around := next(n); len(around) > 0 {
				sum := 0.0
				for _, a := range around {
					sum += index[a]
				}
				key[n] = sum / float64(len(around))
			}
		}
		slices.SortStableFunc(row, func(a, b *node) int { return cmp.Compare(key[a], key[b]) })
		for i, n := range row {
			index[n] = (float64(i) + 0.5) / float64(len(row))
		}
	}
}

// place sets the horizontal positions of all nodes and returns the width of the picture. Each node
// moves toward the mean of its neighbors as far as the nodes next to it in the row allow.
func place(rows [][]*node) float64 {
	for _, row := range rows {
		for i, n := range row {
			n.x = 0
			if i > 0 {
				n.x = row[i-1].x + distance(row[i-1], n)
			}
		}
	}
	for range 200 {
		for _, row := range rows {
			for i, n := range row {
				around := slices.Concat(n.up, n.down)
				if len(around) == 0 {
					continue
				}
				to := 0.0
				for _, a := range around {
					to += a.x / float64(len(around))
				}
				if i > 0 {
					to = max(to, row[i-1].x+distance(row[i-1], n))
				}
				if i+1 < len(row) {
					to = min(to, row[i+1].x-distance(n, row[i+1]))
				}
				n.x = to
			}
		}
	}
	left, right := rows[0][0].x, rows[0][0].x
	for _, row := range rows {
		for _, n := range row {
			left, right = min(left, n.x-boxWidth/2), max(right, n.x+boxWidth/2)
		}
	}
	for _, row := range rows {
		for _, n := range row {
			n.x += margin - left
		}
	}
	return right - left + 2*margin
}

// distance returns the least distance between two neighbors of a row.
func distance(a, b *node) float64 {
	half := func(n *node) float64 {
		if n.name == "" {
			return bendGap / 2
		}
		return (boxWidth + boxGap) / 2
	}
	return half(a) + half(b)
}

func top(n *node) float64 { return margin + float64(n.row)*rowHeight }

// writeLine writes the curve from the lower edge of a node to the upper edge of one a row below.
func writeLine(b *strings.Builder, from, to *node) {
	y0, y1 := top(from)+boxHeight, top(to)
	middle := (y0 + y1) / 2
	path := fmt.Sprintf("M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f", from.x, y0, from.x, middle,
		to.x, middle, to.x, y1)
	if to.name == "" {
		path += fmt.Sprintf("v%d", boxHeight) // through the row
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="#9aa5b1" stroke-width="1.2"/>`+"\n", path)
}

// writeBox writes the box of a package. Packages that users import are blue.
func writeBox(b *strings.Builder, n *node) {
	fill, label := "#f1f3f5", n.name
	switch n.name {
	case ".":
		fill, label = "#d0e3ff", "pgsvi"
	case "data", "formula", "plot":
		fill = "#d0e3ff"
	}
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%d" height="%d" rx="5" fill="%s" `+
		`stroke="#52606d"/>`+"\n", n.x-boxWidth/2, top(n), boxWidth, boxHeight, fill)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#1f2933">%s</text>`+"\n",
		n.x, top(n)+17.5, label)
}
