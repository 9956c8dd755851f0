/* The firmware starts one processor here in supervisor mode: its number in a0, the device tree in
   a1. The others wait for `start_cpu`. */
.section .text.start
.globl start
start:
    csrw sie, zero
    la sp, boot_stack_top
    la t0, bss_start
    la t1, bss_end
1:  sd zero, 0(t0)
    addi t0, t0, 8
    bltu t0, t1, 1b
    la t0, boot_hart
    sd a0, 0(t0)
    mv a0, a1
    call kernel_main
2:  wfi
    j 2b

/* a1: the top of a stack, with the processor's number right below it. */
.text
.globl hart_start
hart_start:
    csrw sie, zero
    mv sp, a1
    ld a0, -8(a1)
    addi sp, sp, -16
    call cpu_main
3:  wfi
    j 3b

.balign 4
.globl trap_entry
trap_entry:
    addi sp, sp, -144
    sd ra, 0(sp)
    sd t0, 8(sp)
    sd t1, 16(sp)
    sd t2, 24(sp)
    sd t3, 32(sp)
    sd t4, 40(sp)
    sd t5, 48(sp)
    sd t6, 56(sp)
    sd a0, 64(sp)
    sd a1, 72(sp)
    sd a2, 80(sp)
    sd a3, 88(sp)
    sd a4, 96(sp)
    sd a5, 104(sp)
    sd a6, 112(sp)
    sd a7, 120(sp)
    csrr a0, sepc
    csrr t0, sstatus
    sd t0, 128(sp)
    call return_address
    sd a0, 136(sp)
    csrr a0, scause
    csrr a1, stval
    csrr a2, sepc
    call on_trap
    ld t0, 128(sp)
    csrw sstatus, t0
    ld t0, 136(sp)
    csrw sepc, t0
    ld ra, 0(sp)
    ld t0, 8(sp)
    ld t1, 16(sp)
    ld t2, 24(sp)
    ld t3, 32(sp)
    ld t4, 40(sp)
    ld t5, 48(sp)
    ld t6, 56(sp)
    ld a0, 64(sp)
    ld a1, 72(sp)
    ld a2, 80(sp)
    ld a3, 88(sp)
    ld a4, 96(sp)
    ld a5, 104(sp)
    ld a6, 112(sp)
    ld a7, 120(sp)
    addi sp, sp, 144
    sret

/* switch_stacks(old: *mut usize, new: usize) */
.globl switch_stacks
switch_stacks:
    addi sp, sp, -112
    sd ra, 0(sp)
    sd s0, 8(sp)
    sd s1, 16(sp)
    sd s2, 24(sp)
    sd s3, 32(sp)
    sd s4, 40(sp)
    sd s5, 48(sp)
    sd s6, 56(sp)
    sd s7, 64(sp)
    sd s8, 72(sp)
    sd s9, 80(sp)
    sd s10, 88(sp)
    sd s11, 96(sp)
    sd sp, 0(a0)
    mv sp, a1
    ld ra, 0(sp)
    ld s0, 8(sp)
    ld s1, 16(sp)
    ld s2, 24(sp)
    ld s3, 32(sp)
    ld s4, 40(sp)
    ld s5, 48(sp)
    ld s6, 56(sp)
    ld s7, 64(sp)
    ld s8, 72(sp)
    ld s9, 80(sp)
    ld s10, 88(sp)
    ld s11, 96(sp)
    addi sp, sp, 112
    ret

.section .data
.balign 8
.globl boot_hart
boot_hart: .quad 0

.section .bss.stack, "aw", @nobits
.balign 4096
.skip 65536
boot_stack_top:
