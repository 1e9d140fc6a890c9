// a window: ((1, 14, 14, 64), (3, 3, 64, 64), {'padding': 1}), usmmla
.LBB4_8:
	add	x4, x11, x1
	ldr	d29, [x8, x1]
	ldur	d25, [x4, #-64]
	ldur	d24, [x4, #-192]
	ldr	d28, [x4, #64]
	sub	x5, x4, #128
	add	x6, x4, #128
	ld1	{ v25.d }[1], [x4]
	add	x4, x9, x1
	ld1	{ v24.d }[1], [x5]
	ld1	{ v28.d }[1], [x6]
	add	x5, x17, x1, lsl #4
	add	x1, x1, #8
	ld1	{ v29.d }[1], [x4]
	ldp	q26, q27, [x5]
	ldp	q30, q31, [x5, #32]
	add	x4, x12, x1
	cmp	x4, x3
	usmmla	v22.4s, v24.16b, v26.16b
	usmmla	v21.4s, v24.16b, v27.16b
	usmmla	v23.4s, v24.16b, v30.16b
	usmmla	v20.4s, v24.16b, v31.16b
	usmmla	v19.4s, v25.16b, v26.16b
	usmmla	v18.4s, v25.16b, v27.16b
	usmmla	v16.4s, v25.16b, v30.16b
	usmmla	v17.4s, v25.16b, v31.16b
	usmmla	v4.4s, v28.16b, v26.16b
	usmmla	v6.4s, v28.16b, v27.16b
	usmmla	v5.4s, v28.16b, v30.16b
	usmmla	v7.4s, v28.16b, v31.16b
	usmmla	v0.4s, v29.16b, v26.16b
	usmmla	v2.4s, v29.16b, v27.16b
	usmmla	v1.4s, v29.16b, v30.16b
	usmmla	v3.4s, v29.16b, v31.16b
	b.lo	.LBB4_8
