/* QEMU starts one processor here, in EL1 and without translation. The others wait for
   `start_cpu`. */
.section .text.start, "ax"
.globl start
start:
    msr daifset, #0xf
    adrp x1, bss_start
    add x1, x1, :lo12:bss_start
    adrp x2, bss_end
    add x2, x2, :lo12:bss_end
1:  str xzr, [x1], #8
    cmp x1, x2
    b.lo 1b
    /* 512 GiB, each address itself, in blocks of 1 GiB: devices in the first, memory above. */
    adrp x1, page_table
    add x1, x1, :lo12:page_table
    mov x2, #0x401
    str x2, [x1]
    mov x3, #1
    mov x4, #0x705
2:  orr x2, x4, x3, lsl #30
    str x2, [x1, x3, lsl #3]
    add x3, x3, #1
    cmp x3, #512
    b.lo 2b
    bl translate
    adrp x1, boot_stack_top
    add x1, x1, :lo12:boot_stack_top
    mov sp, x1
    /* An ELF image finds the device tree at the start of memory. */
    mov x0, #0x40000000
    bl kernel_main
3:  wfi
    b 3b

/* Turns translation and caches on. Memory is write-back and shared by the processors. */
translate:
    adrp x1, page_table
    add x1, x1, :lo12:page_table
    msr ttbr0_el1, x1
    mov x1, #0xff00
    msr mair_el1, x1
    ldr x1, =0x200803519
    msr tcr_el1, x1
    dsb sy
    tlbi vmalle1
    dsb sy
    isb
    mrs x1, sctlr_el1
    mov x2, #0x1005
    orr x1, x1, x2
    msr sctlr_el1, x1
    isb
    ret

/* x0: the top of a stack, with the processor's number right below it. */
.text
.globl cpu_start
cpu_start:
    msr daifset, #0xf
    mov x20, x0
    bl translate
    ldr x0, [x20, #-8]
    sub sp, x20, #16
    bl cpu_main
4:  wfi
    b 4b

.macro vector to
    .balign 128
    b \to
.endm

.balign 2048
.globl vectors
vectors:
    .rept 4
    vector fault_entry
    .endr
    vector fault_entry
    vector interrupt_entry
    .rept 10
    vector fault_entry
    .endr

fault_entry:
    mrs x0, esr_el1
    mrs x1, far_el1
    mrs x2, elr_el1
    bl on_fault

interrupt_entry:
    sub sp, sp, #176
    stp x0, x1, [sp]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x30, [sp, #144]
    mrs x0, elr_el1
    mrs x1, spsr_el1
    str x1, [sp, #168]
    bl return_address
    str x0, [sp, #160]
    bl on_interrupt
    ldp x0, x1, [sp, #160]
    msr elr_el1, x0
    msr spsr_el1, x1
    ldp x0, x1, [sp]
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldp x18, x30, [sp, #144]
    add sp, sp, #176
    eret

/* switch_stacks(old: *mut usize, new: usize) */
.globl switch_stacks
switch_stacks:
    sub sp, sp, #96
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    add sp, sp, #96
    ret

.section .bss.boot, "aw", @nobits
.balign 4096
page_table:
.skip 4096
.skip 65536
boot_stack_top:
